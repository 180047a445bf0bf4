// All pages and slots of the device, and the prefix index over them.
//
// It hands out pages, evicting cached ones when none is free. Which request gets them is decided
// elsewhere.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "scheduler/pages.h"
#include "scheduler/prefix_index.h"
#include "scheduler/types.h"

namespace ts {

class Memory {
 public:
  explicit Memory(const Config &config)
      : config_(config), slots_("slot", config.slots + 1), index_(config_, ledgers_) {
    for (int32_t g = 0; g < config.groups; ++g) {
      ledgers_.emplace_back("group " + std::to_string(g) + " page", config.pages_total[g]);
    }
  }
  Memory(const Memory &) = delete;
  Memory &operator=(const Memory &) = delete;

  const Config &config() const { return config_; }
  Ledger &pages(int32_t group) { return at(ledgers_, group); }
  const Ledger &pages(int32_t group) const { return at(ledgers_, group); }
  Ledger &slots() { return slots_; }
  const Ledger &slots() const { return slots_; }
  PrefixIndex &index() { return index_; }
  const PrefixIndex &index() const { return index_; }

  // Pages that `allocate` can give right now.
  int32_t available(int32_t group) const {
    return pages(group).free() + pages(group).count(PageClass::kCachedIdle);
  }

  // Returns a page, owned by the caller from now on; 0 when not even eviction yields one.
  int32_t allocate(int32_t group) {
    if (pages(group).free() == 0) index_.evict(group);
    return pages(group).take();
  }

  // Grows whenever a page or a slot has come back.
  uint64_t returns() const {
    uint64_t sum = slots_.returns();
    for (const Ledger &ledger : ledgers_) sum += ledger.returns();
    return sum;
  }

 private:
  const Config config_;
  std::vector<Ledger> ledgers_;
  Ledger slots_;
  PrefixIndex index_;
};

}  // namespace ts
