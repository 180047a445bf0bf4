// The operations of ops.h, eight floats at a time with AVX2 and FMA.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "cpu/ops.h"

#if defined(__x86_64__)
// Before the switch: what is compiled with it must not serve those who run without.
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma")

#include "cpu/vec_avx2.h"

namespace tsk::avx2 {
namespace {

#include "cpu/ops_small.h"

#include "cpu/ops_attention.h"

}  // namespace
}  // namespace tsk::avx2

#pragma GCC pop_options

namespace tsk {

const Ops &ops_avx2() {
  using namespace avx2;
  static const Ops ops{norm_rows, silu_mul, rope_store, attend, join, finish};
  return ops;
}

}  // namespace tsk

#else

namespace tsk {

const Ops &ops_avx2() { return ops_portable(); }

}  // namespace tsk

#endif
