// Sixteen floats at a time, for the files that include it with AVX-512 switched on.
#pragma once

#include <immintrin.h>

#include <cstring>

namespace tsk::avx512 {

using Vec = __m512;
constexpr int LANES = 16;

inline Vec load(const float *at) { return _mm512_loadu_ps(at); }
inline void store(float *at, Vec v) { _mm512_storeu_ps(at, v); }
inline Vec all(float value) { return _mm512_set1_ps(value); }
inline Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
inline Vec larger(Vec a, Vec b) { return _mm512_max_ps(a, b); }
inline Vec smaller(Vec a, Vec b) { return _mm512_min_ps(a, b); }
inline Vec nearest(Vec v) {
  return _mm512_roundscale_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

// 2 ** whole, of whole numbers from -126 to 127.
inline Vec power_of_two(Vec whole) {
  const __m512i exponent = _mm512_add_epi32(_mm512_cvtps_epi32(whole), _mm512_set1_epi32(127));
  return _mm512_castsi512_ps(_mm512_slli_epi32(exponent, 23));
}

inline __m256 folded(Vec v) {
  return _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
}

inline float sum(Vec v) {
  const __m256 eight = folded(v);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// The sums of four vectors, to four floats.
inline void store_sums(float *at, Vec a, Vec b, Vec c, Vec d) {
  const __m256 halves =
      _mm256_hadd_ps(_mm256_hadd_ps(folded(a), folded(b)), _mm256_hadd_ps(folded(c), folded(d)));
  _mm_storeu_ps(at, _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1)));
}

}  // namespace tsk::avx512
