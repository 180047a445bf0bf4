// The small operations of a step and its attention, on one processor's share of the work.
//
// One table of functions for each instruction set. Rows do not see each other: a row's numbers come
// from the same operations in the same order whatever stands beside it, and whoever computes it.
#pragma once

#include <cstdint>

namespace tsk {

struct Norm {
  const float *residual;  // null: of x alone
  const float *weight;
  float eps;
  int hidden;
  float *x;  // becomes the sum, if there is a residual
  float *y;
};

struct RopeStore {
  const float *qkv;  // [tokens, heads + 2 * kv_heads, head_dim]
  int heads;
  int kv_heads;
  int head_dim;
  const float *cos;
  const float *sin;
  float *key_pages;
  float *value_pages;
  const int64_t *places;
  float *queries;  // [tokens, heads, head_dim]
};

// What one key head's queries have seen of some keys: the largest score, and relative to it the sum
// of weights and the weighted sum of values.
struct Seen {
  float *largest;  // [queries]
  float *weights;  // [queries]
  float *values;   // [queries, head_dim]
};

struct Attention {
  const float *queries;  // [tokens, heads, head_dim]
  const float *key_pages;
  const float *value_pages;
  int page_tokens;
  int heads;
  int kv_heads;
  int head_dim;
  float scale;
  float *out;  // [tokens, heads, head_dim]

  int group() const { return heads / kv_heads; }
};

// Some queries of one row that read the same key head. Query i is head i % group of the key head's
// group, of token i / group of the row.
struct Queries {
  const int64_t *table;  // pages of the row
  int64_t first_token;   // of the row, in the step
  int64_t context;
  int kv_head;
  int first;
  int last;
};

// Keys are attended to in parts of so many, and the parts joined in order: so the result is the
// same whether one thread goes through all parts or several share them.
constexpr int PART_KEYS = 512;
constexpr int QUERIES_MAX = 24;
constexpr int HEAD_DIM_MAX = 256;

struct Ops {
  void (*norm)(const Norm &norm, int64_t first, int64_t last);
  void (*silu_mul)(const float *gate_up, int n, float *y, int64_t first, int64_t last);
  void (*rope_store)(const RopeStore &rope, int64_t first, int64_t last);
  // Looks at part `part` of the keys.
  void (*attend)(const Attention &attention, const Queries &queries, int64_t part,
                 const Seen &seen);
  // Adds what `more` has seen, behind what `seen` has.
  void (*join)(int head_dim, int queries, const Seen &more, const Seen &seen);
  // Writes the attended values of `queries`.
  void (*finish)(const Attention &attention, const Queries &queries, const Seen &seen);
};

const Ops &ops_avx512();
const Ops &ops_avx2();
const Ops &ops_portable();

}  // namespace tsk
