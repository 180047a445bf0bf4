// What a running request holds on the device: a slot, leases on its cached prefix, pages of its
// own.
//
// Move-only: the state that owns it passes it on, and whoever drops it gives everything back. While
// a step in flight names it, the step must own it (`retire`), so that slot and pages return with
// the last ticket.
//
//   page index   0 ........ path ................. table end
//                [ in the index, leased ][ owned, being filled ]
//   windowed group: entries before `first` are released (page 0)
//
// Invariant: page i of a table is cached exactly when i < path and path[i]'s copy is that page.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/memory.h"
#include "scheduler/sequence.h"
#include "scheduler/types.h"

namespace ts {

struct Table {
  std::vector<int32_t> pages;  // by page index of the sequence; 0 when released
  int32_t first = 0;           // pages before it lie outside the window
  int32_t listed = 0;          // pages before it were named in a plan
  int32_t held() const { return length(pages) - first; }
};

class Residency {
 public:
  // Takes a slot (one must be free) and leases `hit`.
  Residency(Memory &memory, std::vector<Node *> hit);
  Residency(Residency &&other) noexcept;
  Residency &operator=(Residency &&other) noexcept;
  ~Residency() { release(); }

  int32_t slot() const { return slot_; }
  const std::vector<Node *> &path() const { return path_; }
  const Table &table(int32_t group) const { return at(tables_, group); }
  Table &table(int32_t group) { return at(tables_, group); }

  // Pages of `group` still to be allocated before `tokens` tokens have a place.
  int32_t missing(int32_t group, int32_t tokens) const;
  // Tokens that have a place once `pages` more pages of each group are allocated.
  int32_t room(int32_t group, int32_t pages) const;
  // Allocates what is missing for `tokens` tokens; the caller has checked that it is available.
  void cover(int32_t tokens);

  // Enters the pages that lie wholly below `kv_tokens` into the index; returns how many are in it.
  int32_t publish(Sequence &sequence, int32_t kv_tokens);
  // Releases windowed pages that no query at or after `kv_tokens` reads.
  void slide(int32_t kv_tokens);
  // Publishes nothing from now on (what it holds was computed before a flush).
  void stop_publishing() { publishes_ = false; }
  bool publishes() const { return publishes_; }

  // Pages of `group` that come back when this is dropped.
  int32_t exclusive(int32_t group) const;
  // Leading pages that other requests lease too.
  int32_t shared_pages() const;
  // The owner is gone: own pages and the slot become zombies until this is dropped.
  void retire();

  StepId last_step = 0;  // newest step that names it
  bool opened = false;   // a plan has opened the slot

 private:
  bool cached(int32_t group, int32_t index) const;
  void release_page(int32_t group, int32_t index);
  void release();

  Memory *memory_;
  int32_t slot_;
  std::vector<Node *> path_;
  PerGroup<Table> tables_;
  PageClass own_ = PageClass::kOwned;
  bool publishes_;
};

}  // namespace ts
