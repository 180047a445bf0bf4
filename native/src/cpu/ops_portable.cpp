// The operations of ops.h, on any processor.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/ops.h"

#include "cpu/vec_portable.h"

namespace tsk::portable {
namespace {

#include "cpu/ops_small.h"

#include "cpu/ops_attention.h"

}  // namespace
}  // namespace tsk::portable

namespace tsk {

const Ops &ops_portable() {
  using namespace portable;
  static const Ops ops{norm_rows, silu_mul, rope_store, attend, join, finish};
  return ops;
}

}  // namespace tsk
