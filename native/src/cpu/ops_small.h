// Normalisation, gate and rotation, over Vec. Included by ops_*.cpp inside their namespace.

inline Vec load_some(const float *at, int count) {
  float some[LANES] = {};
  std::memcpy(some, at, sizeof(float) * static_cast<size_t>(count));
  return load(some);
}

inline void store_some(float *at, Vec v, int count) {
  float some[LANES];
  store(some, v);
  std::memcpy(at, some, sizeof(float) * static_cast<size_t>(count));
}

// e ** v. Cephes' expf: v = n * ln 2 + r, a polynomial in r, times 2 ** n; within 2 ulp.
inline Vec exponential(Vec v) {
  v = larger(all(-87.0F), smaller(all(88.0F), v));  // in this order: what is no number stays none
  const Vec n = nearest(v * all(1.44269504F));
  const Vec r = fma(n, all(2.12194440e-4F), fma(n, all(-0.693359375F), v));
  Vec p = all(1.9875691500e-4F);
  p = fma(p, r, all(1.3981999507e-3F));
  p = fma(p, r, all(8.3334519073e-3F));
  p = fma(p, r, all(4.1665795894e-2F));
  p = fma(p, r, all(1.6666665459e-1F));
  p = fma(p, r, all(5.0000001201e-1F));
  return fma(p, r * r, r + all(1.0F)) * power_of_two(n);
}

inline void norm_row(const Norm &norm, float *x, const float *residual, float *y) {
  Vec squares = all(0.0F);
  for (int i = 0; i < norm.hidden; i += LANES) {
    const int count = norm.hidden - i < LANES ? norm.hidden - i : LANES;
    Vec v = count == LANES ? load(x + i) : load_some(x + i, count);
    if (residual != nullptr) {
      v = v + (count == LANES ? load(residual + i) : load_some(residual + i, count));
      count == LANES ? store(x + i, v) : store_some(x + i, v, count);
    }
    squares = fma(v, v, squares);
  }
  const float mean = sum(squares) / static_cast<float>(norm.hidden);
  const Vec factor = all(1.0F / std::sqrt(mean + norm.eps));
  for (int i = 0; i < norm.hidden; i += LANES) {
    const int count = norm.hidden - i < LANES ? norm.hidden - i : LANES;
    if (count == LANES) {
      store(y + i, load(x + i) * factor * load(norm.weight + i));
    } else {
      store_some(y + i, load_some(x + i, count) * factor * load_some(norm.weight + i, count),
                 count);
    }
  }
}

void norm_rows(const Norm &norm, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const int64_t at = row * norm.hidden;
    norm_row(norm, norm.x + at, norm.residual == nullptr ? nullptr : norm.residual + at,
             norm.y + at);
  }
}

inline Vec silu_times(Vec gate, Vec up) {
  return gate * up / (all(1.0F) + exponential(all(0.0F) - gate));
}

void silu_mul(const float *gate_up, int n, float *y, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row) {
    const float *gate = gate_up + row * 2 * n;
    float *out = y + row * n;
    int i = 0;
    for (; i + LANES <= n; i += LANES)
      store(out + i, silu_times(load(gate + i), load(gate + n + i)));
    if (i < n)
      store_some(out + i, silu_times(load_some(gate + i, n - i), load_some(gate + n + i, n - i)),
                 n - i);
  }
}

// Turns one head; partners lie half a head apart, and the table of sines has its signs.
inline void rotate(const float *from, const float *cos, const float *sin, int half, float *to) {
  int i = 0;
  for (; i + LANES <= half; i += LANES) {
    const Vec a = load(from + i), b = load(from + half + i);
    store(to + i, fma(b, load(sin + i), a * load(cos + i)));
    store(to + half + i, fma(a, load(sin + half + i), b * load(cos + half + i)));
  }
  for (; i < half; ++i) {
    const float a = from[i], b = from[half + i];
    to[i] = a * cos[i] + b * sin[i];
    to[half + i] = b * cos[half + i] + a * sin[half + i];
  }
}

void rope_store(const RopeStore &rope, int64_t first, int64_t last) {
  const int dim = rope.head_dim;
  for (int64_t token = first; token < last; ++token) {
    const float *from = rope.qkv + token * (rope.heads + 2 * rope.kv_heads) * dim;
    const float *cos = rope.cos + token * dim, *sin = rope.sin + token * dim;
    float *queries = rope.queries + token * rope.heads * dim;
    for (int head = 0; head < rope.heads; ++head)
      rotate(from + head * dim, cos, sin, dim / 2, queries + head * dim);
    from += rope.heads * dim;
    const int64_t place = rope.places[token] * rope.kv_heads * dim;
    for (int head = 0; head < rope.kv_heads; ++head) {
      rotate(from + head * dim, cos, sin, dim / 2, rope.key_pages + place + head * dim);
    }
    std::memcpy(rope.value_pages + place, from + rope.kv_heads * dim,
                sizeof(float) * static_cast<size_t>(rope.kv_heads * dim));
  }
}
