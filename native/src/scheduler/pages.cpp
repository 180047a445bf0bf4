#include "scheduler/pages.h"

#include <utility>

namespace ts {

const char *name(PageClass page_class) {
  static constexpr const char *kNames[kPageClasses] = {"free", "owned", "cached_idle",
                                                       "cached_leased", "zombie"};
  return kNames[static_cast<size_t>(page_class)];
}

Ledger::Ledger(std::string what, int32_t total)
    : what_(std::move(what)), classes_(static_cast<size_t>(total), PageClass::kFree) {
  free_.reserve(classes_.size());
  for (int32_t page = total - 1; page >= 1; --page) free_.push_back(page);
  counts_[static_cast<size_t>(PageClass::kFree)] = total - 1;
}

int32_t Ledger::take() {
  if (free_.empty()) return 0;
  const int32_t page = free_.back();
  free_.pop_back();
  classes_[static_cast<size_t>(page)] = PageClass::kOwned;
  --counts_[static_cast<size_t>(PageClass::kFree)];
  ++counts_[static_cast<size_t>(PageClass::kOwned)];
  return page;
}

void Ledger::move(int32_t page, PageClass from, PageClass to) {
  if (page < 1 || page >= total() || class_of(page) != from || from == PageClass::kFree) {
    if (fault_.empty()) {
      const char *seen = page < 1 || page >= total() ? "out of range" : name(class_of(page));
      fault_ = what_ + " " + std::to_string(page) + " was to go from " + name(from) + " to " +
               name(to) + " but is " + seen;
    }
    return;
  }
  classes_[static_cast<size_t>(page)] = to;
  --counts_[static_cast<size_t>(from)];
  ++counts_[static_cast<size_t>(to)];
  if (to == PageClass::kFree) free_.push_back(page);
  if (to == PageClass::kFree || to == PageClass::kCachedIdle) ++returns_;
}

std::string Ledger::audit() const {
  if (!fault_.empty()) return fault_;
  std::array<int32_t, kPageClasses> seen{};
  for (size_t page = 1; page < classes_.size(); ++page) ++seen[static_cast<size_t>(classes_[page])];
  int32_t sum = 0;
  for (size_t i = 0; i < seen.size(); ++i) {
    sum += counts_[i];
    if (seen[i] == counts_[i]) continue;
    return what_ + ": " + std::to_string(seen[i]) + " are " + name(static_cast<PageClass>(i)) +
           ", counted " + std::to_string(counts_[i]);
  }
  if (sum != total() - 1) return what_ + ": the classes do not sum to the total";
  if (free_.size() != static_cast<size_t>(free()))
    return what_ + ": the free list has a wrong length";
  for (const int32_t page : free_) {
    if (class_of(page) != PageClass::kFree) {
      return what_ + " " + std::to_string(page) + " is on the free list but " +
             name(class_of(page));
    }
  }
  return {};
}

}  // namespace ts
