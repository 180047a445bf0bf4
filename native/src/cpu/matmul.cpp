// The product with a quantised weight: rounds the rows, then shares the tiles among the threads.
#include <algorithm>
#include <cstring>
#include <new>

#include "cpu/pool.h"
#include "cpu/rows.h"
#include "cpu/tile.h"
#include "tokenspeed_kernels.h"

namespace tsk {
namespace {

// A chunk of less work than this is not worth another thread's attention: some microseconds.
constexpr int64_t CHUNK_PRODUCTS = 1 << 18;
constexpr int ROWS_AT_ONCE = 64;
constexpr int THREADS_MAX = 256;

struct Product {
  const tsk_weight *weight;
  const Rows *rows;
  float *y;
  int64_t y_stride;
  TileKernel kernel;
  int tiles_per_chunk;
};

struct Rounding {
  Rows *rows;
  const float *x;
  int64_t x_stride;
  int rows_per_chunk;
};

int tiles_of(const tsk_weight &weight) { return (weight.outputs + TSK_TILE - 1) / TSK_TILE; }

int64_t tile_bytes(const tsk_weight &weight) {
  return int64_t{weight.inputs / TSK_BLOCK} * block_bytes(weight.bits, weight.has_low != 0);
}

int share(int count, int64_t products_each) {
  const int64_t least = std::max<int64_t>(1, CHUNK_PRODUCTS / std::max<int64_t>(1, products_each));
  return static_cast<int>(std::min<int64_t>(count, least));
}

void compute_tile(const Product &product, int tile, float *out) {
  const tsk_weight &weight = *product.weight;
  const Tile part{weight.data + tile * tile_bytes(weight), weight.bits, weight.has_low != 0};
  const int first_output = tile * TSK_TILE;
  const size_t bytes = sizeof(float) * std::min<int>(TSK_TILE, weight.outputs - first_output);
  for (int first = 0; first < product.rows->count; first += ROWS_AT_ONCE) {
    const int last = std::min(first + ROWS_AT_ONCE, product.rows->count);
    product.kernel(part, *product.rows, first, last, out);
    for (int row = first; row < last; ++row) {
      std::memcpy(product.y + row * product.y_stride + first_output, out + (row - first) * TSK_TILE,
                  bytes);
    }
  }
}

void multiply_chunk(const void *job, int chunk) {
  const auto &product = *static_cast<const Product *>(job);
  alignas(64) float out[ROWS_AT_ONCE * TSK_TILE];
  const int first = chunk * product.tiles_per_chunk;
  const int last = std::min(first + product.tiles_per_chunk, tiles_of(*product.weight));
  for (int tile = first; tile < last; ++tile) compute_tile(product, tile, out);
}

void round_chunk(const void *job, int chunk) {
  const auto &rounding = *static_cast<const Rounding *>(job);
  const int first = chunk * rounding.rows_per_chunk;
  const int last = std::min(first + rounding.rows_per_chunk, rounding.rows->count);
  for (int row = first; row < last; ++row)
    round_row(*rounding.rows, row, rounding.x + row * rounding.x_stride);
}

int chunks_of(int count, int per_chunk) { return (count + per_chunk - 1) / per_chunk; }

TileKernel kernel_of(int isa) {
  return isa == TSK_AVX512_VNNI ? tile_avx512 : isa == TSK_AVX2 ? tile_avx2 : tile_scalar;
}

int best_isa() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                    __builtin_cpu_supports("f16c");
  const bool vnni = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                    __builtin_cpu_supports("avx512vl");
  return avx2 && vnni ? TSK_AVX512_VNNI : avx2 ? TSK_AVX2 : TSK_SCALAR;
#else
  return TSK_SCALAR;
#endif
}

bool well_formed(const tsk_weight *weight) {
  return weight != nullptr && weight->data != nullptr && weight->outputs > 0 &&
         weight->inputs > 0 && weight->inputs % TSK_BLOCK == 0 &&
         (weight->bits == 4 || weight->bits == 8);
}

}  // namespace
}  // namespace tsk

extern "C" {

int32_t tsk_abi_version(void) { return TSK_ABI_VERSION; }

int32_t tsk_best_isa(void) {
  static const int best = tsk::best_isa();
  return best;
}

int32_t tsk_set_threads(int32_t threads) {
  if (threads < 1 || threads > tsk::THREADS_MAX) return TSK_ERR_ARGUMENT;
  tsk::Pool::shared().resize(threads);
  return 0;
}

int32_t tsk_matmul(const tsk_weight *weight, const float *x, int64_t x_stride, int32_t rows,
                   float *y, int64_t y_stride, int32_t isa) try {
  using namespace tsk;
  if (!well_formed(weight) || rows < 0 || isa < TSK_SCALAR || isa > tsk_best_isa())
    return TSK_ERR_ARGUMENT;
  if (rows == 0) return 0;
  if (x == nullptr || y == nullptr) return TSK_ERR_ARGUMENT;
  thread_local Rows rounded;
  rounded.resize(rows, weight->inputs);
  Pool &pool = Pool::shared();
  const Rounding rounding{&rounded, x, x_stride, share(rows, int64_t{16} * weight->inputs)};
  pool.run(round_chunk, &rounding, chunks_of(rows, rounding.rows_per_chunk));
  const int tiles = tiles_of(*weight);
  const Product product{
      weight,   &rounded,       y,
      y_stride, kernel_of(isa), share(tiles, int64_t{TSK_TILE} * rows * weight->inputs)};
  pool.run(multiply_chunk, &product, chunks_of(tiles, product.tiles_per_chunk));
  return 0;
} catch (const std::bad_alloc &) {
  return TSK_ERR_MEMORY;
}

int32_t tsk_lookup(const tsk_weight *weight, const int64_t *ids, int32_t count, float *y) {
  using namespace tsk;
  if (!well_formed(weight) || count < 0) return TSK_ERR_ARGUMENT;
  const int step = block_bytes(weight->bits, weight->has_low != 0);
  const int quants = quant_bytes(weight->bits);
  for (int32_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= weight->outputs) return TSK_ERR_ARGUMENT;
  }
  for (int32_t i = 0; i < count; ++i) {
    const uint8_t *at = weight->data + ids[i] / TSK_TILE * tile_bytes(*weight);
    const int lane = static_cast<int>(ids[i] % TSK_TILE);
    for (int block = 0; block < weight->inputs / TSK_BLOCK; ++block, at += step) {
      float *out = y + int64_t{i} * weight->inputs + block * TSK_BLOCK;
      lookup_block(at, at + quants, weight->bits, weight->has_low != 0, lane, out);
    }
  }
  return 0;
}
}
