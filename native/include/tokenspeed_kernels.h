/* Matrix products on the CPU with weights that stay quantised. C ABI of the kernels' native module.
 *
 * It knows bytes and sizes: no Python, no torch. Outputs are the caller's. One caller at a time.
 * A negative return value is an error; nothing was written then.
 *
 * Invariant: an output depends on its row of x and its row of the weight alone, to the last bit:
 * not on the number of rows, of threads, or on the instruction set. */
#ifndef TOKENSPEED_KERNELS_H
#define TOKENSPEED_KERNELS_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cffi: begin */

enum { TSK_ABI_VERSION = 1 };

/* Weights are cut into blocks of TSK_BLOCK inputs; TSK_TILE outputs lie together. */
enum { TSK_BLOCK = 32, TSK_TILE = 16 };
enum { TSK_SCALAR = 0, TSK_AVX2 = 1, TSK_AVX512_VNNI = 2 };
enum { TSK_ERR_ARGUMENT = -1, TSK_ERR_MEMORY = -2 };

/* A weight [outputs, inputs] of numbers q * scale + low; scale and low are float16, one for each
 * output and block. q is 0 to 15 (`bits` 4) or -128 to 127 (`bits` 8). `low` is absent unless
 * `has_low`.
 * Layout: [tiles, blocks] of: the q's, the TSK_TILE scales, the TSK_TILE lows. The q's of a block
 * are eight vectors of [TSK_TILE outputs, 4 inputs] bytes; with 4 bits, vector v + 4 lies in the
 * high halves of the bytes of vector v. The last tile is filled up with zeros. */
typedef struct {
  const uint8_t *data;
  int32_t outputs;
  int32_t inputs; /* a multiple of TSK_BLOCK */
  int32_t bits;
  int32_t has_low;
} tsk_weight;

int32_t tsk_abi_version(void);
/* The best instruction set of this machine, one of TSK_SCALAR, ... */
int32_t tsk_best_isa(void);
/* Threads that a product uses, the caller's included: 1 to 256. */
int32_t tsk_set_threads(int32_t threads);

/* y [rows, outputs] = x [rows, inputs] times the weight, transposed. Rows lie `x_stride` and
 * `y_stride` floats apart. x is rounded to 8 bits in blocks of TSK_BLOCK; products and sums inside
 * a block are exact, blocks are added in order in float32. `isa` is at most tsk_best_isa(). */
int32_t tsk_matmul(const tsk_weight *weight, const float *x, int64_t x_stride, int32_t rows,
                   float *y, int64_t y_stride, int32_t isa);
/* y [count, inputs] = the weight's rows `ids`, which are in range. */
int32_t tsk_lookup(const tsk_weight *weight, const int64_t *ids, int32_t count, float *y);

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
