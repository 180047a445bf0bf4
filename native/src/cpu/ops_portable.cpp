// The operations of ops.h, on any processor.
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/ops.h"
#include "tokenspeed_kernels.h"

#include "cpu/vec_portable.h"

namespace tsk::portable {
namespace {

#include "cpu/ops_small.h"

#include "cpu/ops_product.h"

#include "cpu/ops_attention.h"

}  // namespace
}  // namespace tsk::portable

namespace tsk {

const Ops &ops_portable() {
  using namespace portable;
  static const Ops ops{multiply, norm_rows, silu_mul, rope_store, attend, join, finish};
  return ops;
}

}  // namespace tsk
