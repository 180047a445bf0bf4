// The token ids of one request: the prompt, then the accepted output; and the page hashes of both.
//
// Hashes are computed once per page and extended as the sequence grows. It does not know where the
// tokens' KV lies.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "scheduler/hash.h"
#include "scheduler/plant.h"
#include "scheduler/types.h"

namespace ts {

class Sequence {
 public:
  Sequence(int32_t page_tokens, const Hash &space, std::span<const int32_t> prompt,
           std::span<const int32_t> resume, int32_t max_tokens)
      : page_tokens_(page_tokens),
        space_(planted(Bug::kNamespaceIgnored) ? Hash{} : space),
        prompt_tokens_(static_cast<int32_t>(prompt.size())) {
    constexpr size_t kReserveMax = 4096;
    tokens_.reserve(prompt.size() + std::min(static_cast<size_t>(max_tokens), kReserveMax));
    tokens_.insert(tokens_.end(), prompt.begin(), prompt.end());
    tokens_.insert(tokens_.end(), resume.begin(), resume.end());
  }

  void append(int32_t token) { tokens_.push_back(token); }

  int32_t known() const { return length(tokens_); }
  int32_t prompt_tokens() const { return prompt_tokens_; }
  int32_t outputs() const { return known() - prompt_tokens_; }
  const int32_t *tokens() const { return tokens_.data(); }
  const int32_t *page(int32_t index) const {
    return tokens_.data() + static_cast<ptrdiff_t>(index) * page_tokens_;
  }
  // What separates prefixes that must not be shared: the parent of every first page.
  const Hash &space() const { return space_; }

  // The hash of page `index`, all of whose tokens are known.
  const Hash &hash(int32_t index) {
    for (int32_t next = length(hashes_); next <= index; ++next) {
      const Hash &parent = next == 0 ? space_ : hashes_.back();
      hashes_.push_back(hash_page(parent, page(next), page_tokens_));
    }
    return at(hashes_, index);
  }

 private:
  int32_t page_tokens_;
  Hash space_;
  int32_t prompt_tokens_;
  std::vector<int32_t> tokens_;
  std::vector<Hash> hashes_;
};

}  // namespace ts
