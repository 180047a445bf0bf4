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

/* The other operations of a step, float32. Rows are contiguous; `isa` as above. An output depends
 * on its own row alone, to the last bit, on one instruction set. */

/* y = x / sqrt(mean(x^2) + eps) * weight, all [rows, hidden]. Unless `residual` is null, of x +
 * residual, which is written into x. */
int32_t tsk_rms_norm(float *x, const float *residual, const float *weight, float eps, int32_t rows,
                     int32_t hidden, float *y, int32_t isa);
/* y [rows, n] = silu(gate) * up for `gate_up` [rows, 2 * n]. */
int32_t tsk_silu_mul(const float *gate_up, int32_t rows, int32_t n, float *y, int32_t isa);
/* Turns the queries and keys of `qkv` [tokens, heads + 2 * kv_heads, head_dim] by `cos` and `sin`
 * [tokens, head_dim], the sine negated in its first half; writes keys and values of token i to
 * places[i] of the pages and the queries to `queries`. */
int32_t tsk_rope_store(const float *qkv, int32_t tokens, int32_t heads, int32_t kv_heads,
                       int32_t head_dim, const float *cos, const float *sin, float *key_pages,
                       float *value_pages, const int64_t *places, float *queries, int32_t isa);

/* Row i has counts[i] >= 1 queries behind contexts[i] keys; its query j sees keys 0 to contexts[i]
 * + j. Line i of `tables`, table_stride apart, holds its pages. Queries follow each other, row
 * after row. head_dim is a multiple of 8, at most 256. */
typedef struct {
  const float *queries;   /* [tokens, heads, head_dim] */
  const float *key_pages; /* [pages, page_tokens, kv_heads, head_dim] */
  const float *value_pages;
  const int64_t *tables;
  int64_t table_stride;
  const int64_t *counts;
  const int64_t *contexts;
  float *out; /* [tokens, heads, head_dim] */
  int32_t rows;
  int32_t page_tokens;
  int32_t heads;
  int32_t kv_heads;
  int32_t head_dim;
} tsk_attention;

int32_t tsk_attend(const tsk_attention *attention, int32_t isa);

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
