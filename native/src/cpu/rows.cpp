#include "cpu/rows.h"

#include <algorithm>
#include <cmath>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tsk {
namespace {

constexpr float LEVELS = 127.0F;

#if defined(__x86_64__)

// SSE2 is part of every x86-64.

// The largest of a block, without its sign; no number if one of them is none or has no bounds,
// which rounding would hide.
float largest(const float *x) {
  const __m128 sign = _mm_set1_ps(-0.0F);
  __m128 most = _mm_setzero_ps();
  __m128 doubt = _mm_setzero_ps();  // 0 * x: zero, or no number
  for (int i = 0; i < TSK_BLOCK; i += 4) {
    const __m128 four = _mm_loadu_ps(x + i);
    most = _mm_max_ps(most, _mm_andnot_ps(sign, four));
    doubt = _mm_add_ps(doubt, _mm_mul_ps(four, _mm_setzero_ps()));
  }
  alignas(16) float parts[4];
  alignas(16) float doubts[4];
  _mm_store_ps(parts, most);
  _mm_store_ps(doubts, doubt);
  return std::max({parts[0], parts[1], parts[2], parts[3]}) + doubts[0] + doubts[1] + doubts[2] +
         doubts[3];
}

// Conversion rounds to the nearest even, as nearbyint does.
int32_t round_block(const float *x, float inverse, int8_t *values) {
  const __m128 factor = _mm_set1_ps(inverse);
  __m128i sum = _mm_setzero_si128();
  for (int i = 0; i < TSK_BLOCK; i += 16) {
    __m128i part[4];
    for (int j = 0; j < 4; ++j) {
      part[j] = _mm_cvtps_epi32(_mm_mul_ps(_mm_loadu_ps(x + i + 4 * j), factor));
      sum = _mm_add_epi32(sum, part[j]);
    }
    const __m128i low = _mm_packs_epi32(part[0], part[1]);
    const __m128i high = _mm_packs_epi32(part[2], part[3]);
    _mm_storeu_si128(reinterpret_cast<__m128i *>(values + i), _mm_packs_epi16(low, high));
  }
  alignas(16) int32_t parts[4];
  _mm_store_si128(reinterpret_cast<__m128i *>(parts), sum);
  return parts[0] + parts[1] + parts[2] + parts[3];
}

#else

float largest(const float *x) {
  float most = 0.0F;
  float doubt = 0.0F;
  for (int i = 0; i < TSK_BLOCK; ++i) {
    most = std::max(most, std::fabs(x[i]));
    doubt += x[i] * 0.0F;
  }
  return most + doubt;
}

int32_t round_block(const float *x, float inverse, int8_t *values) {
  int32_t sum = 0;
  for (int i = 0; i < TSK_BLOCK; ++i) {
    values[i] = static_cast<int8_t>(std::nearbyint(x[i] * inverse));
    sum += values[i];
  }
  return sum;
}

#endif

}  // namespace

void Rows::resize(int rows, int inputs) {
  count = rows;
  blocks = inputs / TSK_BLOCK;
  const size_t cells = static_cast<size_t>(rows) * blocks;
  values.resize(cells * TSK_BLOCK);
  scales.resize(cells);
  sums.resize(cells);
  sums_scaled.resize(cells);
}

void round_row(Rows &rows, int row, const float *x) {
  for (int block = 0; block < rows.blocks; ++block) {
    const size_t cell = static_cast<size_t>(row) * rows.blocks + block;
    const float *from = x + static_cast<size_t>(block) * TSK_BLOCK;
    const float scale = largest(from) / LEVELS;
    // A block of numbers too small to divide by is a block of zeros.
    const float inverse = scale >= 1e-35F ? 1.0F / scale : 0.0F;
    rows.sums[cell] = round_block(from, inverse, rows.values.data() + cell * TSK_BLOCK);
    rows.scales[cell] = scale;
    rows.sums_scaled[cell] = static_cast<float>(rows.sums[cell]) * scale;
  }
}

}  // namespace tsk
