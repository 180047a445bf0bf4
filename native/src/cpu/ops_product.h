// The product with float32 weights, over Vec. Included by ops_*.cpp inside their namespace.
//
// An output is one chain of multiply-adds over the inputs in order, whatever rows it stands among.

constexpr int TILE_VECS = TSK_TILE / LANES;
constexpr int SIDE_ROWS = 6;
// Rows that share a tile while it is near: so much of x stays in the second-level cache.
constexpr int ROWS_BYTES = 128 << 10;

template <int ROWS>
inline void multiply_side(const float *tile, int inputs, const float *x, int64_t x_stride,
                          float *out) {
  Vec sums[ROWS][TILE_VECS];
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < TILE_VECS; ++v) sums[r][v] = all(0.0F);
  }
  for (int i = 0; i < inputs; ++i, tile += TSK_TILE) {
    Vec weights[TILE_VECS];
#pragma GCC unroll 4
    for (int v = 0; v < TILE_VECS; ++v) weights[v] = load(tile + v * LANES);
#pragma GCC unroll 8
    for (int r = 0; r < ROWS; ++r) {
      const Vec value = all(x[r * x_stride + i]);
#pragma GCC unroll 4
      for (int v = 0; v < TILE_VECS; ++v) sums[r][v] = fma(value, weights[v], sums[r][v]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < ROWS; ++r) {
#pragma GCC unroll 4
    for (int v = 0; v < TILE_VECS; ++v) store(out + r * TSK_TILE + v * LANES, sums[r][v]);
  }
}

inline void multiply_some(int rows, const float *tile, int inputs, const float *x, int64_t x_stride,
                          float *out) {
  switch (rows) {
    case 1:
      return multiply_side<1>(tile, inputs, x, x_stride, out);
    case 2:
      return multiply_side<2>(tile, inputs, x, x_stride, out);
    case 3:
      return multiply_side<3>(tile, inputs, x, x_stride, out);
    case 4:
      return multiply_side<4>(tile, inputs, x, x_stride, out);
    case 5:
      return multiply_side<5>(tile, inputs, x, x_stride, out);
    default:
      return multiply_side<SIDE_ROWS>(tile, inputs, x, x_stride, out);
  }
}

inline void multiply_tile(const FloatProduct &product, int tile, int first, int last) {
  const float *weight = product.weight + static_cast<int64_t>(tile) * product.inputs * TSK_TILE;
  const int begin = tile * TSK_TILE;
  const int outputs = product.outputs - begin < TSK_TILE ? product.outputs - begin : TSK_TILE;
  alignas(64) float out[SIDE_ROWS * TSK_TILE];
  for (int row = first; row < last; row += SIDE_ROWS) {
    const int rows = last - row < SIDE_ROWS ? last - row : SIDE_ROWS;
    multiply_some(rows, weight, product.inputs, product.x + row * product.x_stride,
                  product.x_stride, out);
    for (int r = 0; r < rows; ++r) {
      float *to = product.y + (row + r) * product.y_stride + begin;
      std::memcpy(to, out + r * TSK_TILE, sizeof(float) * static_cast<size_t>(outputs));
    }
  }
}

void multiply(const FloatProduct &product, int first_tile, int last_tile) {
  const int fitting = ROWS_BYTES / 4 / product.inputs / SIDE_ROWS * SIDE_ROWS;
  const int step = fitting < SIDE_ROWS ? SIDE_ROWS : fitting;
  for (int first = 0; first < product.rows; first += step) {
    const int last = product.rows - first < step ? product.rows : first + step;
    for (int tile = first_tile; tile < last_tile; ++tile) multiply_tile(product, tile, first, last);
  }
}
