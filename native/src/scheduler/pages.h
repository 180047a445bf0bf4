// The ledgers: in which class is each page of a cache group, and each slot.
//
// They know neither requests nor tokens. Every change of class names the class it comes from; a
// mismatch (a page freed twice, say) changes nothing and is kept as a fault for the audit.
// Invariant: each page is in exactly one class, and the classes sum to the total.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace ts {

enum class PageClass : uint8_t { kFree, kOwned, kCachedIdle, kCachedLeased, kZombie };
inline constexpr int32_t kPageClasses = 5;

const char *name(PageClass page_class);

// Pages 1..total-1 of one group, or the slots 1..total-1; number 0 is padding and never given out.
class Ledger {
 public:
  Ledger(std::string what, int32_t total);

  // Moves a free page to `owned` and returns it; 0 when none is free.
  int32_t take();
  void move(int32_t page, PageClass from, PageClass to);

  PageClass class_of(int32_t page) const { return classes_[static_cast<size_t>(page)]; }
  int32_t count(PageClass page_class) const { return counts_[static_cast<size_t>(page_class)]; }
  int32_t free() const { return count(PageClass::kFree); }
  int32_t total() const { return static_cast<int32_t>(classes_.size()); }
  // How often a page became free or idle: while it stands still, no page has come back.
  uint64_t returns() const { return returns_; }

  // Returns an empty text, or what is wrong.
  std::string audit() const;

 private:
  std::string what_;
  std::vector<PageClass> classes_;
  std::vector<int32_t> free_;
  std::array<int32_t, kPageClasses> counts_{};
  uint64_t returns_ = 0;
  std::string fault_;
};

}  // namespace ts
