// The C ABI of the operations of a step: shares each among the threads.
#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "cpu/ops.h"
#include "cpu/pool.h"
#include "tokenspeed_kernels.h"

namespace tsk {
namespace {

// A chunk of less work than this is not worth another thread's attention: some microseconds.
constexpr int64_t CHUNK_FLOATS = 1 << 13;

const Ops *ops_of(int32_t isa) {
  if (isa < TSK_SCALAR || isa > tsk_best_isa()) return nullptr;
  return isa == TSK_SCALAR ? &ops_portable() : isa == TSK_AVX2 ? &ops_avx2() : &ops_avx512();
}

int64_t chunks_of(int64_t count, int64_t per_chunk) { return (count + per_chunk - 1) / per_chunk; }

// Calls work(first, last) for ranges that make up [0, count), on the threads of the pool.
template <class Work>
void share(int64_t count, int64_t cost_each, int64_t cost_chunk, const Work &work) {
  struct Job {
    const Work *work;
    int64_t count, step;
  };
  const int64_t step = std::max<int64_t>(1, cost_chunk / std::max<int64_t>(1, cost_each));
  const Job job{&work, count, step};
  Pool::shared().run(
      [](const void *raw, int chunk) {
        const auto &own = *static_cast<const Job *>(raw);
        const int64_t first = chunk * own.step;
        (*own.work)(first, std::min(first + own.step, own.count));
      },
      &job, static_cast<int>(chunks_of(count, step)));
}

// One piece of the attention of a step: some queries of a row, and which part of the keys, or all.
struct Piece {
  Queries queries;
  int64_t part;  // -1: all, one after the other
  int64_t parts;
  Seen seen;  // of a single part
};

struct Work {
  std::vector<Piece> pieces;
  std::vector<float> seen;  // of the pieces with a single part
};

Seen seen_at(float *at, int queries) { return {at, at + queries, at + 2 * queries}; }

int64_t seen_floats(int queries, int head_dim) {
  return static_cast<int64_t>(queries) * (2 + head_dim);
}

void attend_all(const Ops &ops, const Attention &attention, const Piece &piece) {
  alignas(64) float first[QUERIES_MAX * (2 + HEAD_DIM_MAX)];
  alignas(64) float next[QUERIES_MAX * (2 + HEAD_DIM_MAX)];
  const int count = piece.queries.last - piece.queries.first;
  const Seen seen = seen_at(first, count), more = seen_at(next, count);
  ops.attend(attention, piece.queries, 0, seen);
  for (int64_t part = 1; part < piece.parts; ++part) {
    ops.attend(attention, piece.queries, part, more);
    ops.join(attention.head_dim, count, more, seen);
  }
  ops.finish(attention, piece.queries, seen);
}

void attend_piece(const Ops &ops, const Attention &attention, const Piece &piece) {
  if (piece.part < 0) return attend_all(ops, attention, piece);
  ops.attend(attention, piece.queries, piece.part, piece.seen);
}

// The first of the pieces of a split row's key head joins the others to itself.
void join_pieces(const Ops &ops, const Attention &attention, const std::vector<Piece> &pieces) {
  for (size_t at = 0; at < pieces.size(); ++at) {
    const Piece &first = pieces[at];
    if (first.part != 0) continue;
    const int count = first.queries.last - first.queries.first;
    for (int64_t part = 1; part < first.parts; ++part) {
      ops.join(attention.head_dim, count, pieces[at + static_cast<size_t>(part)].seen, first.seen);
    }
    ops.finish(attention, first.queries, first.seen);
  }
}

// A row of few queries behind many keys is cut by keys: there are not enough queries to share.
void add_row(const Attention &attention, const Queries &row, int64_t tokens, Work &work) {
  const int64_t queries = tokens * attention.group();
  const bool split = queries <= QUERIES_MAX;
  for (int head = 0; head < attention.kv_heads; ++head) {
    for (int64_t first = 0; first < queries; first += QUERIES_MAX) {
      Piece piece{row, -1, 0, {}};
      piece.queries.kv_head = head;
      piece.queries.first = static_cast<int>(first);
      piece.queries.last = static_cast<int>(std::min<int64_t>(first + QUERIES_MAX, queries));
      piece.parts =
          chunks_of(row.context + (piece.queries.last - 1) / attention.group() + 1, PART_KEYS);
      if (split && piece.parts > 1) {
        for (piece.part = 0; piece.part < piece.parts; ++piece.part) work.pieces.push_back(piece);
      } else {
        work.pieces.push_back(piece);
      }
    }
  }
}

void place_seen(const Attention &attention, Work &work) {
  int64_t floats = 0;
  for (const Piece &piece : work.pieces) {
    if (piece.part >= 0)
      floats += seen_floats(piece.queries.last - piece.queries.first, attention.head_dim);
  }
  work.seen.resize(static_cast<size_t>(floats));
  float *at = work.seen.data();
  for (Piece &piece : work.pieces) {
    if (piece.part < 0) continue;
    const int count = piece.queries.last - piece.queries.first;
    piece.seen = seen_at(at, count);
    at += seen_floats(count, attention.head_dim);
  }
}

}  // namespace
}  // namespace tsk

extern "C" {

int32_t tsk_rms_norm(float *x, const float *residual, const float *weight, float eps, int32_t rows,
                     int32_t hidden, float *y, int32_t isa) {
  using namespace tsk;
  const Ops *ops = ops_of(isa);
  if (ops == nullptr || rows < 0 || hidden < 1) return TSK_ERR_ARGUMENT;
  const Norm norm{residual, weight, eps, hidden, x, y};
  share(rows, hidden, CHUNK_FLOATS,
        [&](int64_t first, int64_t last) { ops->norm(norm, first, last); });
  return 0;
}

int32_t tsk_silu_mul(const float *gate_up, int32_t rows, int32_t n, float *y, int32_t isa) {
  using namespace tsk;
  const Ops *ops = ops_of(isa);
  if (ops == nullptr || rows < 0 || n < 1) return TSK_ERR_ARGUMENT;
  share(rows, 2 * n, CHUNK_FLOATS,
        [&](int64_t first, int64_t last) { ops->silu_mul(gate_up, n, y, first, last); });
  return 0;
}

int32_t tsk_rope_store(const float *qkv, int32_t tokens, int32_t heads, int32_t kv_heads,
                       int32_t head_dim, const float *cos, const float *sin, float *key_pages,
                       float *value_pages, const int64_t *places, float *queries, int32_t isa) {
  using namespace tsk;
  const Ops *ops = ops_of(isa);
  if (ops == nullptr || tokens < 0 || heads < 1 || kv_heads < 1 || head_dim < 2 || head_dim % 2)
    return TSK_ERR_ARGUMENT;
  const RopeStore rope{qkv, heads,     kv_heads,    head_dim, cos,
                       sin, key_pages, value_pages, places,   queries};
  share(tokens, int64_t{heads + 2 * kv_heads} * head_dim, CHUNK_FLOATS,
        [&](int64_t first, int64_t last) { ops->rope_store(rope, first, last); });
  return 0;
}

int32_t tsk_attend(const tsk_attention *asked, int32_t isa) try {
  using namespace tsk;
  const bool narrow = isa == TSK_AVX512_VNNI && asked != nullptr && asked->head_dim % 16 != 0;
  const Ops *ops = ops_of(narrow ? TSK_AVX2 : isa);
  if (ops == nullptr || asked == nullptr || asked->page_tokens < 1 || asked->kv_heads < 1 ||
      asked->heads < 1 || asked->heads % asked->kv_heads || asked->head_dim < 8 ||
      asked->head_dim % 8 || asked->head_dim > HEAD_DIM_MAX) {
    return TSK_ERR_ARGUMENT;
  }
  const Attention attention{
      asked->queries,     asked->key_pages,
      asked->value_pages, asked->page_tokens,
      asked->heads,       asked->kv_heads,
      asked->head_dim,    1.0F / std::sqrt(static_cast<float>(asked->head_dim)),
      asked->out};
  static thread_local Work work;
  work.pieces.clear();
  int64_t first_token = 0;
  for (int32_t row = 0; row < asked->rows; ++row) {
    const int64_t tokens = asked->counts[row];
    if (tokens < 1 || asked->contexts[row] < 0) return TSK_ERR_ARGUMENT;
    const Queries queries{
        asked->tables + row * asked->table_stride, first_token, asked->contexts[row], 0, 0, 0};
    add_row(attention, queries, tokens, work);
    first_token += tokens;
  }
  place_seen(attention, work);
  const Work &shared = work;
  share(static_cast<int64_t>(shared.pieces.size()), 1, 1, [&](int64_t first, int64_t last) {
    for (int64_t at = first; at < last; ++at)
      attend_piece(*ops, attention, shared.pieces[static_cast<size_t>(at)]);
  });
  join_pieces(*ops, attention, shared.pieces);
  return 0;
} catch (const std::bad_alloc &) {
  return TSK_ERR_MEMORY;
}
}
