// Attention over pages, over Vec. Included by ops_*.cpp inside their namespace.
//
// Keys are taken in blocks that begin at multiples of BLOCK_KEYS, with a running maximum (Milakov
// and Gimelshein, "Online normalizer calculation for softmax", 2018). A query's numbers depend on
// its own keys alone, in their order. What lies in a page behind a query's last key is never used.

constexpr int BLOCK_KEYS = 64;
constexpr int KEYS_AT_ONCE = 4;
constexpr float NOTHING = -3.0e38F;

struct KeyBlock {
  const float *keys[BLOCK_KEYS];
  const float *values[BLOCK_KEYS];
};

// Where `count` keys from `first` on lie; the last one stands in for those behind it.
inline void locate(const Attention &attention, const Queries &queries, int64_t first, int count,
                   KeyBlock &block) {
  const int64_t token_floats = static_cast<int64_t>(attention.kv_heads) * attention.head_dim;
  for (int i = 0; i < BLOCK_KEYS; ++i) {
    const int64_t key = first + (i < count ? i : count - 1);
    const int64_t place = queries.table[key / attention.page_tokens] * attention.page_tokens +
                          key % attention.page_tokens;
    const int64_t at =
        place * token_floats + static_cast<int64_t>(queries.kv_head) * attention.head_dim;
    block.keys[i] = attention.key_pages + at;
    block.values[i] = attention.value_pages + at;
  }
}

// Scores of QUERIES queries and KEYS_AT_ONCE keys, [QUERIES, BLOCK_KEYS].
template <int QUERIES>
inline void score(const float *const *queries, const float *const *keys, int head_dim,
                  float *scores) {
  Vec sums[QUERIES][KEYS_AT_ONCE];
#pragma GCC unroll 4
  for (int q = 0; q < QUERIES; ++q) {
#pragma GCC unroll 4
    for (int k = 0; k < KEYS_AT_ONCE; ++k) sums[q][k] = all(0.0F);
  }
  for (int i = 0; i < head_dim; i += LANES) {
    Vec query[QUERIES];
#pragma GCC unroll 4
    for (int q = 0; q < QUERIES; ++q) query[q] = load(queries[q] + i);
#pragma GCC unroll 4
    for (int k = 0; k < KEYS_AT_ONCE; ++k) {
      const Vec key = load(keys[k] + i);
#pragma GCC unroll 4
      for (int q = 0; q < QUERIES; ++q) sums[q][k] = fma(query[q], key, sums[q][k]);
    }
  }
#pragma GCC unroll 4
  for (int q = 0; q < QUERIES; ++q) {
    store_sums(scores + q * BLOCK_KEYS, sums[q][0], sums[q][1], sums[q][2], sums[q][3]);
  }
}

inline void score_block(const float *const *queries, int count, const KeyBlock &block, int keys,
                        int head_dim, float *scores) {
  for (int key = 0; key < keys; key += KEYS_AT_ONCE) {
    int q = 0;
    for (; q + 3 <= count; q += 3)
      score<3>(queries + q, block.keys + key, head_dim, scores + q * BLOCK_KEYS + key);
    if (count - q == 2)
      score<2>(queries + q, block.keys + key, head_dim, scores + q * BLOCK_KEYS + key);
    if (count - q == 1)
      score<1>(queries + q, block.keys + key, head_dim, scores + q * BLOCK_KEYS + key);
  }
}

// Turns the scores of `keys` keys into weights relative to the largest score seen; zeros behind
// them. Returns by what the earlier weights are to be multiplied.
inline float weigh(float *scores, int keys, float scale, float &largest, float &weights) {
  for (int i = keys; i < BLOCK_KEYS; ++i) scores[i] = NOTHING;
  Vec best = load(scores);
  for (int i = LANES; i < BLOCK_KEYS; i += LANES) best = larger(best, load(scores + i));
  float lanes[LANES];
  store(lanes, best);
  float top = lanes[0];
  for (int i = 1; i < LANES; ++i) top = lanes[i] > top ? lanes[i] : top;
  top *= scale;
  const float before = largest;
  if (top > largest) largest = top;
  Vec sums = all(0.0F);
  for (int i = 0; i < BLOCK_KEYS; i += LANES) {
    const Vec weight = exponential(fma(load(scores + i), all(scale), all(-largest)));
    store(scores + i, weight);
    sums = sums + weight;
  }
  // What stands behind the keys must weigh nothing at all, not e ** -87.
  for (int i = keys; i < BLOCK_KEYS; ++i) scores[i] = 0.0F;
  const float shrink = before == largest   ? 1.0F
                       : before == NOTHING ? 0.0F
                                           : std::exp(before - largest);
  weights = weights * shrink + sum(sums);
  return shrink;
}

// What is added to the values seen of one query: `keys` weights, behind `shrink` times what is
// there.
struct Share {
  const float *weights;
  float *out;
  float shrink;
};

template <int QUERIES, int VECS>
inline void add_values(const Share *shares, const float *const *values, int first, int last,
                       int at) {
  Vec sums[QUERIES][VECS];
#pragma GCC unroll 3
  for (int q = 0; q < QUERIES; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) {
      sums[q][v] = load(shares[q].out + at + v * LANES) * all(first == 0 ? shares[q].shrink : 1.0F);
    }
  }
  for (int key = first; key < last; ++key) {
    Vec value[VECS];
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) value[v] = load(values[key] + at + v * LANES);
#pragma GCC unroll 3
    for (int q = 0; q < QUERIES; ++q) {
      const Vec weight = all(shares[q].weights[key]);
#pragma GCC unroll 4
      for (int v = 0; v < VECS; ++v) sums[q][v] = fma(weight, value[v], sums[q][v]);
    }
  }
#pragma GCC unroll 3
  for (int q = 0; q < QUERIES; ++q) {
#pragma GCC unroll 4
    for (int v = 0; v < VECS; ++v) store(shares[q].out + at + v * LANES, sums[q][v]);
  }
}

template <int QUERIES>
inline void add_all_values(const Share *shares, const float *const *values, int first, int last,
                           int head_dim) {
  int at = 0;
  for (; at + 4 * LANES <= head_dim; at += 4 * LANES)
    add_values<QUERIES, 4>(shares, values, first, last, at);
  for (; at < head_dim; at += LANES) add_values<QUERIES, 1>(shares, values, first, last, at);
}

// Adds the values of three queries while all of them see the keys, and then of each alone.
inline void add_three(const Share *shares, const int *keys, const float *const *values,
                      int head_dim) {
  const int common = std::min({keys[0], keys[1], keys[2]});
  if (common > 0) add_all_values<3>(shares, values, 0, common, head_dim);
  for (int q = 0; q < 3; ++q) {
    if (keys[q] > common) add_all_values<1>(shares + q, values, common, keys[q], head_dim);
  }
}

void attend(const Attention &attention, const Queries &queries, int64_t part, const Seen &seen) {
  const int count = queries.last - queries.first, dim = attention.head_dim,
            group = attention.group();
  const float *rows[QUERIES_MAX];
  int64_t limits[QUERIES_MAX];
  for (int i = 0; i < count; ++i) {
    const int token = (queries.first + i) / group,
              head = queries.kv_head * group + (queries.first + i) % group;
    rows[i] = attention.queries + ((queries.first_token + token) * attention.heads + head) * dim;
    limits[i] = queries.context + token + 1;
    seen.largest[i] = NOTHING;
    seen.weights[i] = 0.0F;
  }
  std::memset(seen.values, 0, sizeof(float) * static_cast<size_t>(count * dim));
  const int64_t end =
      (part + 1) * PART_KEYS < limits[count - 1] ? (part + 1) * PART_KEYS : limits[count - 1];
  alignas(64) float scores[QUERIES_MAX * BLOCK_KEYS];
  KeyBlock block;
  for (int64_t first = part * PART_KEYS; first < end; first += BLOCK_KEYS) {
    const int keys = end - first < BLOCK_KEYS ? static_cast<int>(end - first) : BLOCK_KEYS;
    locate(attention, queries, first, keys, block);
    score_block(rows, count, block, keys, dim, scores);
    Share shares[QUERIES_MAX];
    int own[QUERIES_MAX];
    for (int i = 0; i < count; ++i) {
      own[i] = static_cast<int>(std::clamp<int64_t>(limits[i] - first, 0, keys));
      float *weights = scores + i * BLOCK_KEYS;
      shares[i] = {weights, seen.values + i * dim, 1.0F};
      if (own[i] > 0)
        shares[i].shrink =
            weigh(weights, own[i], attention.scale, seen.largest[i], seen.weights[i]);
    }
    int i = 0;
    for (; i + 3 <= count; i += 3) add_three(shares + i, own + i, block.values, dim);
    for (; i < count; ++i) {
      if (own[i] > 0) add_all_values<1>(shares + i, block.values, 0, own[i], dim);
    }
  }
}

void join(int head_dim, int queries, const Seen &more, const Seen &seen) {
  for (int i = 0; i < queries; ++i) {
    if (more.weights[i] == 0.0F) continue;
    const float top = seen.largest[i] > more.largest[i] ? seen.largest[i] : more.largest[i];
    const float keep = std::exp(seen.largest[i] - top), take = std::exp(more.largest[i] - top);
    seen.largest[i] = top;
    seen.weights[i] = seen.weights[i] * keep + more.weights[i] * take;
    float *to = seen.values + i * head_dim;
    const float *from = more.values + i * head_dim;
    for (int d = 0; d < head_dim; d += LANES) {
      store(to + d, fma(load(from + d), all(take), load(to + d) * all(keep)));
    }
  }
}

void finish(const Attention &attention, const Queries &queries, const Seen &seen) {
  const int dim = attention.head_dim, group = attention.group();
  for (int i = 0; i < queries.last - queries.first; ++i) {
    const int token = (queries.first + i) / group,
              head = queries.kv_head * group + (queries.first + i) % group;
    float *to = attention.out + ((queries.first_token + token) * attention.heads + head) * dim;
    const Vec factor = all(1.0F / seen.weights[i]);
    for (int d = 0; d < dim; d += LANES) store(to + d, load(seen.values + i * dim + d) * factor);
  }
}
