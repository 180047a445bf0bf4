// The chained 128-bit hash that names a page of a prefix.
//
// A page's hash covers its tokens and its parent's hash; the first page's parent is the namespace.
// Equal hashes are a hint: the index compares tokens. The fuzzer's build can leave two bits of it,
// so that it meets collisions all the time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scheduler/plant.h"

namespace ts {

struct Hash {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Hash &) const = default;
};

struct HashOfHash {
  size_t operator()(const Hash &hash) const { return static_cast<size_t>(hash.low); }
};

namespace detail {

// Folds the 128-bit product of two words, so that each input bit reaches each output bit.
inline uint64_t fold(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace detail

inline Hash hash_page(const Hash &parent, const int32_t *tokens, int32_t count) {
  // Four unrelated odd constants: no factor of a product is 0 for a parent or a token of 0.
  constexpr uint64_t kA = 0x9d3f6c8b2e51a747, kB = 0xc2b7e1560f94d38b;
  constexpr uint64_t kC = 0x5e8d20b7f1c94a63, kD = 0xb16a4f93d70e825d;
  uint64_t low = parent.low ^ kA;
  uint64_t high = parent.high ^ kB;
  for (int32_t i = 0; i < count; ++i) {
    const uint64_t word = static_cast<uint32_t>(tokens[i]) | (static_cast<uint64_t>(i + 1) << 32);
    low = detail::fold(low ^ word, high ^ kC);
    high = detail::fold(high + word, kD) ^ low;
  }
  return weak_hash ? Hash{low & 3, 0} : Hash{low, high};
}

}  // namespace ts
