// The tile with AVX2 and FMA: its outputs lie in two halves of eight.
#include <cstdint>
#include <cstring>

#include "cpu/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")

namespace tsk {
namespace {

constexpr int VECTORS = 8;
constexpr int ROWS_MAX = 4;

inline __m256i load(const uint8_t *at) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i *>(at));
}

inline __m256 halves(const uint8_t *at) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(at)));
}

inline __m256i four_inputs(const int8_t *x, int vector) {
  int32_t four;
  std::memcpy(&four, x + 4 * vector, sizeof four);
  return _mm256_set1_epi32(four);
}

// The weights of eight outputs and a whole block, [vectors, 8 outputs, 4 inputs].
template <int BITS>
inline void unpack(const uint8_t *block, __m256i *weights) {
  if constexpr (BITS == 8) {
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) weights[v] = load(block + v * 64);
  } else {
    const __m256i low = _mm256_set1_epi8(15);
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS / 2; ++v) {
      const __m256i pair = load(block + v * 64);
      weights[v] = _mm256_and_si256(pair, low);
      weights[v + 4] = _mm256_and_si256(_mm256_srli_epi16(pair, 4), low);
    }
  }
}

template <int BITS>
inline __m256i dot(const __m256i *weights, const int8_t *x) {
  const __m256i ones = _mm256_set1_epi16(1);
  if constexpr (BITS == 4) {
    // Eight sums of two products of at most 15 * 127 fit into 16 bits.
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(weights[v], four_inputs(x, v)));
    }
    return _mm256_madd_epi16(sum, ones);
  } else {
    // |w| * (x with the sign of w): two products of at most 128 * 127 fit into 16 bits.
    __m256i sum = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v) {
      const __m256i signed_x = _mm256_sign_epi8(four_inputs(x, v), weights[v]);
      const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights[v]), signed_x);
      sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
  }
}

template <int BITS, bool LOW, int ROWS>
void half_tile(const uint8_t *data, int half, const Rows &rows, int first, float *y) {
  constexpr int step = block_bytes(BITS, LOW);
  __m256 sums[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) sums[r] = _mm256_setzero_ps();
  for (int block = 0; block < rows.blocks; ++block) {
    const uint8_t *at = data + static_cast<size_t>(block) * step;
    __m256i weights[VECTORS];
    unpack<BITS>(at + 32 * half, weights);
    at += quant_bytes(BITS);
    const __m256 scale = halves(at + 16 * half);
    const __m256 low = LOW ? halves(at + TSK_TILE * 2 + 16 * half) : _mm256_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const size_t cell = static_cast<size_t>(first + r) * rows.blocks + block;
      const __m256 product =
          _mm256_cvtepi32_ps(dot<BITS>(weights, rows.values.data() + cell * TSK_BLOCK));
      sums[r] = _mm256_fmadd_ps(product, _mm256_mul_ps(scale, _mm256_set1_ps(rows.scales[cell])),
                                sums[r]);
      if (LOW) sums[r] = _mm256_fmadd_ps(low, _mm256_set1_ps(rows.sums_scaled[cell]), sums[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm256_storeu_ps(y + r * TSK_TILE + 8 * half, sums[r]);
}

template <int BITS, bool LOW, int ROWS>
void some_rows(const uint8_t *data, const Rows &rows, int first, float *y) {
  half_tile<BITS, LOW, ROWS>(data, 0, rows, first, y);
  half_tile<BITS, LOW, ROWS>(data, 1, rows, first, y);
}

#include "cpu/tile_rows.h"

}  // namespace

void tile_avx2(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  every_row(tile, rows, first, last, y);
}

}  // namespace tsk

#pragma GCC pop_options

#else

namespace tsk {

void tile_avx2(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  tile_scalar(tile, rows, first, last, y);
}

}  // namespace tsk

#endif
