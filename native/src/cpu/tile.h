// One tile of outputs (TSK_TILE of them) for some rows: the inner part of the product.
//
// One file for each instruction set; all compute
//     y = sum over blocks, in order, of fma(low, sums_scaled, fma(float(dot), scale_w * scale_x,
//     y))
// with fused multiply-adds in float32 and exact integer dots, and so the same bits.
#pragma once

#include <cstdint>

#include "cpu/rows.h"

namespace tsk {

struct Tile {
  const uint8_t *data;  // [blocks, block_bytes]
  int bits;
  bool has_low;
};

// Of one block: its q's, and with them the scales and the lows, which are of two bytes.
constexpr int quant_bytes(int bits) { return TSK_TILE * TSK_BLOCK * bits / 8; }
constexpr int block_bytes(int bits, bool has_low) {
  return quant_bytes(bits) + TSK_TILE * 2 * (has_low ? 2 : 1);
}

// Computes rows [first, last) into y [last - first, TSK_TILE], TSK_TILE floats apart.
using TileKernel = void (*)(const Tile &tile, const Rows &rows, int first, int last, float *y);

void tile_scalar(const Tile &tile, const Rows &rows, int first, int last, float *y);
void tile_avx2(const Tile &tile, const Rows &rows, int first, int last, float *y);
void tile_avx512(const Tile &tile, const Rows &rows, int first, int last, float *y);

float half_to_float(uint16_t half);

// The numbers of output `lane` of one block: q * scale + low, [TSK_BLOCK]. `scales` lie behind the
// q's.
void lookup_block(const uint8_t *block, const uint8_t *scales, int bits, bool has_low, int lane,
                  float *out);

}  // namespace tsk
