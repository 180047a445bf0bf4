// Ids that were cancelled before they were submitted.
//
// Each waits for its submit (which it swallows) or for the word that none will come. Bounded: the
// oldest goes when there are too many.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "scheduler/types.h"

namespace ts {

class Tombstones {
 public:
  static constexpr size_t kMax = 65'536;

  void add(RequestId id) {
    if (!order_of_.try_emplace(id, next_).second) return;
    by_order_.emplace(next_++, id);
    if (by_order_.size() > kMax) remove(by_order_.begin()->second);
  }

  // Returns whether there was one.
  bool remove(RequestId id) {
    const auto found = order_of_.find(id);
    if (found == order_of_.end()) return false;
    by_order_.erase(found->second);
    order_of_.erase(found);
    return true;
  }

  bool contains(RequestId id) const { return order_of_.contains(id); }
  int32_t size() const { return static_cast<int32_t>(order_of_.size()); }

 private:
  std::unordered_map<RequestId, uint64_t> order_of_;
  std::map<uint64_t, RequestId> by_order_;
  uint64_t next_ = 0;
};

}  // namespace ts
