#include <bit>
#include <cmath>
#include <cstring>

#include "cpu/tile.h"

namespace tsk {
namespace {

constexpr int VECTOR_BYTES = TSK_TILE * 4;  // [outputs, 4 inputs]

// The q of output `lane` and input `vector` * 4 + `step` of a block.
int weight(const uint8_t *block, int bits, int vector, int lane, int step) {
  const int place = lane * 4 + step;
  if (bits == 8) return static_cast<int8_t>(block[vector * VECTOR_BYTES + place]);
  const int pair = block[vector % 4 * VECTOR_BYTES + place];
  return vector < 4 ? pair & 15 : pair >> 4;
}

uint16_t half_at(const uint8_t *place, int index) {
  uint16_t half;
  std::memcpy(&half, place + 2 * index, 2);
  return half;
}

}  // namespace

float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = half >> 10 & 31;
  const uint32_t fraction = half & 1023;
  if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const uint32_t wide = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

void tile_scalar(const Tile &tile, const Rows &rows, int first, int last, float *y) {
  const int step = block_bytes(tile.bits, tile.has_low);
  const uint8_t *scales_at = tile.data + quant_bytes(tile.bits);
  for (int row = first; row < last; ++row) {
    for (int lane = 0; lane < TSK_TILE; ++lane) {
      float sum = 0.0F;
      for (int block = 0; block < rows.blocks; ++block) {
        const size_t cell = static_cast<size_t>(row) * rows.blocks + block;
        const int8_t *x = rows.values.data() + cell * TSK_BLOCK;
        const uint8_t *at = tile.data + static_cast<size_t>(block) * step;
        const uint8_t *scales = scales_at + static_cast<size_t>(block) * step;
        int32_t dot = 0;
        for (int i = 0; i < TSK_BLOCK; ++i) dot += weight(at, tile.bits, i / 4, lane, i % 4) * x[i];
        sum = std::fma(static_cast<float>(dot),
                       half_to_float(half_at(scales, lane)) * rows.scales[cell], sum);
        if (tile.has_low)
          sum = std::fma(half_to_float(half_at(scales, TSK_TILE + lane)), rows.sums_scaled[cell],
                         sum);
      }
      y[(row - first) * TSK_TILE + lane] = sum;
    }
  }
}

void lookup_block(const uint8_t *block, const uint8_t *scales, int bits, bool has_low, int lane,
                  float *out) {
  const float scale = half_to_float(half_at(scales, lane));
  const float low = has_low ? half_to_float(half_at(scales, TSK_TILE + lane)) : 0.0F;
  for (int i = 0; i < TSK_BLOCK; ++i) {
    out[i] = static_cast<float>(weight(block, bits, i / 4, lane, i % 4)) * scale + low;
  }
}

}  // namespace tsk
