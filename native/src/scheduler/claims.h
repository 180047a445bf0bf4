// Who is computing which page of a prefix right now.
//
// A running prefill claims the pages it will compute; a request whose next missing page is claimed
// waits for it. A claim goes when its page is published or its owner stops. Claims are hints: a
// wrong one (equal hashes) costs a wait, never a wrong hit.
#pragma once

#include <unordered_map>

#include "scheduler/request.h"

namespace ts {

class Claims {
 public:
  // Whether `request` is to wait for the page: somebody computes it, and not behind `request`.
  bool blocks(const Request &request, const Hash &hash) const {
    const Request *found = owner(hash);
    return found != nullptr && found->priority >= request.priority;
  }

  // Claims the pages [begin, end) of `request`, save those that another one has claimed.
  void claim(Request &request, int32_t begin, int32_t end) {
    request.claims_begin = begin;
    request.claims_end = end;
    for (int32_t i = begin; i < end; ++i) owners_.try_emplace(request.sequence.hash(i), &request);
  }

  // Drops the claims of `request` on pages before `end`.
  void settle(Request &request, int32_t end) {
    for (; request.claims_begin < std::min(end, request.claims_end); ++request.claims_begin) {
      const auto owner = owners_.find(request.sequence.hash(request.claims_begin));
      if (owner != owners_.end() && owner->second == &request) owners_.erase(owner);
    }
  }

  void drop(Request &request) { settle(request, request.claims_end); }

  size_t size() const { return owners_.size(); }
  const Request *owner(const Hash &hash) const {
    const auto found = owners_.find(hash);
    return found == owners_.end() ? nullptr : found->second;
  }

 private:
  std::unordered_map<Hash, Request *, HashOfHash> owners_;
};

}  // namespace ts
