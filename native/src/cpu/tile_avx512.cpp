// The tile with AVX-512 VNNI: a vector holds four inputs of each of the tile's outputs.
#include <cstdint>

#include "cpu/tile.h"

#if defined(__x86_64__)
#include <immintrin.h>

// GCC 12 takes the undefined source of its own intrinsics for a mistake.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl,avx512vnni,fma,f16c")

namespace tsk {
namespace {

constexpr int VECTORS = 8;
constexpr int ROWS_MAX = 8;
// Four inputs; read so, and not copied, they become a broadcast within the instruction that uses
// them.
using Word [[gnu::may_alias]] = int32_t;

constexpr int OFFSET = 128;  // makes signed bytes unsigned, as the instruction wants one side

template <int BITS>
inline void unpack(const uint8_t *block, __m512i *weights) {
  if constexpr (BITS == 8) {
    const __m512i offset = _mm512_set1_epi8(static_cast<char>(OFFSET));
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS; ++v)
      weights[v] = _mm512_xor_si512(_mm512_loadu_si512(block + v * 64), offset);
  } else {
    const __m512i low = _mm512_set1_epi8(15);
#pragma GCC unroll 8
    for (int v = 0; v < VECTORS / 2; ++v) {
      const __m512i pair = _mm512_loadu_si512(block + v * 64);
      weights[v] = _mm512_and_si512(pair, low);
      weights[v + 4] = _mm512_and_si512(_mm512_srli_epi16(pair, 4), low);
    }
  }
}

inline __m512 halves(const uint8_t *at) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i *>(at)));
}

template <int BITS>
inline __m512i dot(const __m512i *weights, const int8_t *x, int32_t sum) {
  __m512i even = BITS == 8 ? _mm512_set1_epi32(-OFFSET * sum) : _mm512_setzero_si512();
  __m512i odd = _mm512_setzero_si512();
  const auto *four_inputs = reinterpret_cast<const Word *>(x);
#pragma GCC unroll 8
  for (int v = 0; v < VECTORS; v += 2) {
    even = _mm512_dpbusd_epi32(even, weights[v], _mm512_set1_epi32(four_inputs[v]));
    odd = _mm512_dpbusd_epi32(odd, weights[v + 1], _mm512_set1_epi32(four_inputs[v + 1]));
  }
  return _mm512_add_epi32(even, odd);
}

template <int BITS, bool LOW, int ROWS>
void some_rows(const uint8_t *data, const Rows &rows, int first, float *y) {
  constexpr int step = block_bytes(BITS, LOW);
  __m512 sums[ROWS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) sums[r] = _mm512_setzero_ps();
  const size_t cells = static_cast<size_t>(first) * rows.blocks;
  const int8_t *x = rows.values.data() + cells * TSK_BLOCK;
  const float *scales = rows.scales.data() + cells;
  const int32_t *x_sums = rows.sums.data() + cells;
  const float *x_sums_scaled = rows.sums_scaled.data() + cells;
  for (int block = 0; block < rows.blocks; ++block) {
    __m512i weights[VECTORS];
    unpack<BITS>(data, weights);
    const uint8_t *at = data + quant_bytes(BITS);
    const __m512 scale = halves(at);
    const __m512 low = LOW ? halves(at + TSK_TILE * 2) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const size_t cell = static_cast<size_t>(r) * rows.blocks + block;
      const __m512 product =
          _mm512_cvtepi32_ps(dot<BITS>(weights, x + cell * TSK_BLOCK, x_sums[cell]));
      sums[r] =
          _mm512_fmadd_ps(product, _mm512_mul_ps(scale, _mm512_set1_ps(scales[cell])), sums[r]);
      if (LOW) sums[r] = _mm512_fmadd_ps(low, _mm512_set1_ps(x_sums_scaled[cell]), sums[r]);
    }
    data += step;
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) _mm512_storeu_ps(y + r * TSK_TILE, sums[r]);
}

#include "cpu/tile_rows.h"

}  // namespace

void tile_avx512(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  every_row(tile, rows, first, last, y);
}

}  // namespace tsk

#pragma GCC pop_options

#else

namespace tsk {

void tile_avx512(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  tile_scalar(tile, rows, first, last, y);
}

}  // namespace tsk

#endif
