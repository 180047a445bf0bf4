// The prefix index: which page of which group holds the KV of which prefix.
//
// A tree of nodes, one per prefix of whole pages, found by chained hash and confirmed by comparing
// parent and tokens. A node has a copy per cache group; copies of windowed groups come and go, a
// copy of a full group lives as long as its node. It knows pages and leases, never requests.
//
// Who leases a node leases all its ancestors, and leases are dropped deepest first. So a plain list
// by time of release is leaf-first LRU: the head of a full group's list never has children.
//
// Two requests may compute the same page. The second one leases the node with a page of its own, a
// duplicate; when nobody leases the node's copy any more, a duplicate takes its place, so that no
// one pins two pages for one.
// Invariant: a copy is in its group's list exactly when it is idle, and idle copies can be evicted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler/hash.h"
#include "scheduler/pages.h"
#include "scheduler/sequence.h"
#include "scheduler/types.h"

namespace ts {

struct Node;

// The page that holds a node's tokens in one group; page 0 means none.
struct Copy {
  int32_t page = 0;
  int32_t leases = 0;
  Node *older = nullptr;
  Node *newer = nullptr;
};

struct Duplicate {
  int32_t group;
  int32_t page;
};

struct Node {
  Node *parent = nullptr;
  Node *same_hash = nullptr;
  Hash hash;
  Hash space;
  int32_t children = 0;
  int32_t leases = 0;
  bool indexed = false;  // false once hidden: no one can find it any more
  PerGroup<Copy> copies{};
  std::vector<Duplicate> duplicates;  // in full groups
  std::vector<int32_t> tokens;
};

class PrefixIndex {
 public:
  PrefixIndex(const Config &config, std::vector<Ledger> &ledgers);

  // Nodes of the longest prefix of `sequence`, at most `pages_max` pages, that every group can
  // resume.
  std::vector<Node *> match(Sequence &sequence, int32_t pages_max) const;
  // Returns the node of page `index` below `parent`, or null.
  Node *find(const Node *parent, Sequence &sequence, int32_t index) const;

  // Enters page `index` of `sequence` below `parent` (leased by the caller), leased once more. The
  // caller's `pages` (0: none) become the node's copies where it has none; otherwise they stay the
  // caller's, as duplicates in full groups.
  Node *publish(Node *parent, Sequence &sequence, int32_t index, const PerGroup<int32_t> &pages);

  // A lease on a node covers its copies in full groups; windowed copies are leased one by one.
  // `pages` are those that the lessee uses in full groups.
  void lease(Node *node);
  void release(Node *node, const PerGroup<int32_t> &pages);
  void lease_copy(Node *node, int32_t group);
  void release_copy(Node *node, int32_t group);

  // Frees the page of `group` that was released first; false when no page is idle.
  bool evict(int32_t group);
  // Frees all idle pages and hides the leased ones; returns how many were freed.
  int32_t flush();

  // Lets nobody find `node`, or one below it, any more; frees the idle pages among theirs.
  void withdraw(Node *node);

  int32_t nodes() const { return nodes_live_; }
  // Returns an empty text, or what is wrong.
  std::string audit() const;

 private:
  Node *make();
  void hide(Node *node);
  void erase_if_bare(Node *node);
  void erase(Node *node);
  void drop_copy(Node *node, int32_t group);
  void drop_duplicate(Node *node, Duplicate dropped);
  bool promote(Node *node, int32_t group);
  void link(Node *node, int32_t group);
  void unlink(Node *node, int32_t group);
  std::string audit_list(int32_t group) const;
  std::string audit_node(const Node &node) const;

  struct List {
    Node *oldest = nullptr;
    Node *newest = nullptr;
  };

  const Config &config_;
  std::vector<Ledger> &ledgers_;
  std::unordered_map<Hash, Node *, HashOfHash> by_hash_;
  std::vector<std::unique_ptr<Node>> arena_;
  std::vector<Node *> spare_;
  PerGroup<List> idle_{};
  int32_t nodes_live_ = 0;
};

}  // namespace ts
