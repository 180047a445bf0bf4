// Four floats at a time by the compiler's own vectors, on any processor.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

namespace tsk::portable {

using Vec = float __attribute__((vector_size(16)));
using Whole = int32_t __attribute__((vector_size(16)));
constexpr int LANES = 4;

inline Vec load(const float *at) {
  Vec v;
  std::memcpy(&v, at, sizeof v);
  return v;
}
inline void store(float *at, Vec v) { std::memcpy(at, &v, sizeof v); }
inline Vec all(float value) { return Vec{value, value, value, value}; }
inline Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
inline Vec larger(Vec a, Vec b) { return a > b ? a : b; }
inline Vec smaller(Vec a, Vec b) { return a < b ? a : b; }
inline Vec nearest(Vec v) {
  return Vec{std::nearbyint(v[0]), std::nearbyint(v[1]), std::nearbyint(v[2]),
             std::nearbyint(v[3])};
}

// 2 ** whole, of whole numbers from -126 to 127.
inline Vec power_of_two(Vec whole) {
  const Whole exponent = (__builtin_convertvector(whole, Whole) + 127) << 23;
  Vec v;
  std::memcpy(&v, &exponent, sizeof v);
  return v;
}

inline float sum(Vec v) { return (v[0] + v[2]) + (v[1] + v[3]); }

// The sums of four vectors, to four floats.
inline void store_sums(float *at, Vec a, Vec b, Vec c, Vec d) {
  at[0] = sum(a);
  at[1] = sum(b);
  at[2] = sum(c);
  at[3] = sum(d);
}

}  // namespace tsk::portable
