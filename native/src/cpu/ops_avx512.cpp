// The operations of ops.h, sixteen floats at a time with AVX-512.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/ops.h"

#if defined(__x86_64__)
// Before the switch: what is compiled with it must not serve those who run without.
#include <immintrin.h>

#pragma GCC push_options
// GCC 12 warns of its own intrinsics, whose results it leaves open on purpose.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC target("avx512f,avx512dq,avx2,fma")

#include "cpu/vec_avx512.h"

namespace tsk::avx512 {
namespace {

#include "cpu/ops_small.h"

#include "cpu/ops_attention.h"

}  // namespace
}  // namespace tsk::avx512

#pragma GCC pop_options

namespace tsk {

const Ops &ops_avx512() {
  using namespace avx512;
  static const Ops ops{norm_rows, silu_mul, rope_store, attend, join, finish};
  return ops;
}

}  // namespace tsk

#else

namespace tsk {

const Ops &ops_avx512() { return ops_portable(); }

}  // namespace tsk

#endif
