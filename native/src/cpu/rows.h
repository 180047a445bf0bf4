// Rows of activations, rounded to 8 bits in blocks.
//
// Invariant: the numbers do not depend on the instruction set: every one of them is rounded to the
// nearest even in the same order of operations.
#pragma once

#include <cstdint>
#include <vector>

#include "tokenspeed_kernels.h"

namespace tsk {

struct Rows {
  int count = 0;
  int blocks = 0;
  std::vector<int8_t> values;      // [count, blocks * TSK_BLOCK], -127 to 127
  std::vector<float> scales;       // [count, blocks]
  std::vector<int32_t> sums;       // [count, blocks], of the values
  std::vector<float> sums_scaled;  // [count, blocks], sum * scale

  void resize(int rows, int inputs);
};

// Rounds row `row` of `rows`.
void round_row(Rows &rows, int row, const float *x);

}  // namespace tsk
