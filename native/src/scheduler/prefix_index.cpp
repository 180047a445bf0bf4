#include "scheduler/prefix_index.h"

#include <algorithm>
#include <utility>

namespace ts {

PrefixIndex::PrefixIndex(const Config &config, std::vector<Ledger> &ledgers)
    : config_(config), ledgers_(ledgers) {}

Node *PrefixIndex::find(const Node *parent, Sequence &sequence, int32_t index) const {
  const auto bucket = by_hash_.find(sequence.hash(index));
  if (bucket == by_hash_.end()) return nullptr;
  const int32_t *tokens = sequence.page(index);
  for (Node *node = bucket->second; node != nullptr; node = node->same_hash) {
    if (planted(Bug::kHashWithoutTokens)) return node;
    if (node->parent == parent && (parent != nullptr || node->space == sequence.space()) &&
        std::equal(node->tokens.begin(), node->tokens.end(), tokens)) {
      return node;
    }
  }
  return nullptr;
}

std::vector<Node *> PrefixIndex::match(Sequence &sequence, int32_t pages_max) const {
  std::vector<Node *> path;
  size_t resumable = 0;
  PerGroup<int32_t> run{};  // length of the unbroken run of copies that ends at this page
  while (length(path) < pages_max) {
    Node *node = find(path.empty() ? nullptr : path.back(), sequence, length(path));
    if (node == nullptr) break;
    path.push_back(node);
    const int32_t depth = length(path);
    bool all = true;
    for (int32_t g = 0; g < config_.groups; ++g) {
      at(run, g) = at(node->copies, g).page != 0 ? at(run, g) + 1 : 0;
      all &= at(run, g) >= depth - first_page(config_, g, depth * config_.page_tokens);
    }
    if (all) resumable = path.size();
  }
  path.resize(resumable);
  return path;
}

Node *PrefixIndex::publish(Node *parent, Sequence &sequence, int32_t index,
                           const PerGroup<int32_t> &pages) {
  Node *node = find(parent, sequence, index);
  if (node == nullptr) {
    node = make();
    node->parent = parent;
    node->hash = sequence.hash(index);
    node->space = sequence.space();
    node->tokens.assign(sequence.page(index), sequence.page(index) + config_.page_tokens);
    node->indexed = true;
    if (parent != nullptr) ++parent->children;
    Node *&bucket = by_hash_[node->hash];
    node->same_hash = bucket;
    bucket = node;
  }
  ++node->leases;
  for (int32_t g = 0; g < config_.groups; ++g) {
    Copy &copy = at(node->copies, g);
    const int32_t page = at(pages, g);
    if (page == 0) continue;
    if (copy.page == 0) {
      copy.page = page;
      copy.leases = 1;
      at(ledgers_, g).move(page, PageClass::kOwned, PageClass::kCachedLeased);
    } else if (is_full(config_, g)) {
      node->duplicates.push_back({g, page});
      if (copy.leases == 0) promote(node, g);
    }
  }
  return node;
}

void PrefixIndex::lease(Node *node) {
  ++node->leases;
  for (int32_t g = 0; g < config_.groups; ++g) {
    if (is_full(config_, g)) lease_copy(node, g);
  }
}

void PrefixIndex::release(Node *node, const PerGroup<int32_t> &pages) {
  --node->leases;
  for (int32_t g = 0; g < config_.groups; ++g) {
    if (!is_full(config_, g)) continue;
    if (at(pages, g) == at(node->copies, g).page) {
      release_copy(node, g);
    } else {
      drop_duplicate(node, {g, at(pages, g)});
    }
  }
  erase_if_bare(node);
}

void PrefixIndex::lease_copy(Node *node, int32_t group) {
  Copy &copy = at(node->copies, group);
  if (copy.leases++ > 0) return;
  at(ledgers_, group).move(copy.page, PageClass::kCachedIdle, PageClass::kCachedLeased);
  if (!planted(Bug::kLeasedPageEvictable)) unlink(node, group);
}

void PrefixIndex::release_copy(Node *node, int32_t group) {
  Copy &copy = at(node->copies, group);
  if (--copy.leases > 0 || promote(node, group)) return;
  if (node->indexed) {
    at(ledgers_, group).move(copy.page, PageClass::kCachedLeased, PageClass::kCachedIdle);
    link(node, group);
  } else {
    at(ledgers_, group).move(copy.page, PageClass::kCachedLeased, PageClass::kFree);
    copy.page = 0;
  }
}

bool PrefixIndex::evict(int32_t group) {
  Node *node = at(idle_, group).oldest;
  if (node == nullptr) return false;
  if (is_full(config_, group)) {
    // A leaf, by the order of the list. It goes as a whole: without this copy none can resume it.
    for (int32_t g = 0; g < config_.groups; ++g) drop_copy(node, g);
  } else {
    drop_copy(node, group);
  }
  erase_if_bare(node);
  return true;
}

int32_t PrefixIndex::flush() {
  int32_t freed = 0;
  for (int32_t g = 0; g < config_.groups; ++g) {
    const int32_t before = at(ledgers_, g).free();
    while (evict(g)) {
    }
    freed += at(ledgers_, g).free() - before;
  }
  if (planted(Bug::kFlushKeepsLeased)) return freed;
  for (const auto &node : arena_) {
    if (node->indexed) hide(node.get());
  }
  return freed;
}

void PrefixIndex::withdraw(Node *node) {
  // Rare, so a walk over all nodes will do. Deepest first: a parent goes after its children.
  std::vector<std::pair<int32_t, Node *>> below;
  for (const auto &each : arena_) {
    int32_t depth = 0;
    bool found = false;
    for (const Node *up = each.get(); up != nullptr; up = up->parent, ++depth) found |= up == node;
    if (found) below.emplace_back(-depth, each.get());
  }
  std::stable_sort(below.begin(), below.end(),
                   [](const auto &a, const auto &b) { return a.first < b.first; });
  for (const auto &[depth, each] : below) {
    if (each->tokens.empty()) continue;  // erased with its last child
    for (int32_t g = 0; g < config_.groups; ++g) {
      if (at(each->copies, g).leases == 0) drop_copy(each, g);
    }
    if (each->indexed) hide(each);
    erase_if_bare(each);
  }
}

Node *PrefixIndex::make() {
  ++nodes_live_;
  if (spare_.empty()) {
    arena_.push_back(std::make_unique<Node>());
    return arena_.back().get();
  }
  Node *node = spare_.back();
  spare_.pop_back();
  return node;
}

// Takes the node out of its hash bucket.
void PrefixIndex::hide(Node *node) {
  const auto bucket = by_hash_.find(node->hash);
  Node **place = &bucket->second;
  while (*place != node) place = &(*place)->same_hash;
  *place = node->same_hash;
  if (bucket->second == nullptr) by_hash_.erase(bucket);
  node->same_hash = nullptr;
  node->indexed = false;
}

// Erases the node if nothing hangs on it any more, then its ancestors on the same terms.
void PrefixIndex::erase_if_bare(Node *node) {
  while (node != nullptr && node->leases == 0 && node->children == 0) {
    for (int32_t g = 0; g < config_.groups; ++g) {
      if (at(node->copies, g).page != 0) return;
    }
    Node *parent = node->parent;
    erase(node);
    node = parent;
  }
}

void PrefixIndex::erase(Node *node) {
  if (node->indexed) hide(node);
  if (node->parent != nullptr) --node->parent->children;
  std::vector<int32_t> tokens = std::move(node->tokens);
  *node = Node{};
  node->tokens = std::move(tokens);  // keeps the memory for the next node
  node->tokens.clear();
  spare_.push_back(node);
  --nodes_live_;
}

// Frees an idle copy.
void PrefixIndex::drop_copy(Node *node, int32_t group) {
  Copy &copy = at(node->copies, group);
  if (copy.page == 0) return;
  unlink(node, group);
  at(ledgers_, group).move(copy.page, PageClass::kCachedIdle, PageClass::kFree);
  copy.page = 0;
}

void PrefixIndex::drop_duplicate(Node *node, Duplicate dropped) {
  const auto found = std::find_if(
      node->duplicates.begin(), node->duplicates.end(), [&](const Duplicate &duplicate) {
        return duplicate.group == dropped.group && duplicate.page == dropped.page;
      });
  if (found != node->duplicates.end()) node->duplicates.erase(found);
  Ledger &ledger = at(ledgers_, dropped.group);
  ledger.move(dropped.page, ledger.class_of(dropped.page), PageClass::kFree);
}

// Lets a duplicate take the place of a copy that nobody leases; false if there is none.
bool PrefixIndex::promote(Node *node, int32_t group) {
  const auto found =
      std::find_if(node->duplicates.begin(), node->duplicates.end(),
                   [&](const Duplicate &duplicate) { return duplicate.group == group; });
  if (found == node->duplicates.end()) return false;
  Ledger &ledger = at(ledgers_, group);
  Copy &copy = at(node->copies, group);
  const PageClass before = ledger.class_of(copy.page);
  if (before == PageClass::kCachedIdle) unlink(node, group);
  ledger.move(copy.page, before, PageClass::kFree);
  copy.page = found->page;
  copy.leases = 1;
  // Owned, or a zombie whose last step is still in flight: whole pages are not written any more.
  ledger.move(copy.page, ledger.class_of(copy.page), PageClass::kCachedLeased);
  node->duplicates.erase(found);
  return true;
}

void PrefixIndex::link(Node *node, int32_t group) {
  List &list = at(idle_, group);
  Copy &copy = at(node->copies, group);
  copy.older = list.newest;
  copy.newer = nullptr;
  (list.newest != nullptr ? at(list.newest->copies, group).newer : list.oldest) = node;
  list.newest = node;
}

void PrefixIndex::unlink(Node *node, int32_t group) {
  List &list = at(idle_, group);
  Copy &copy = at(node->copies, group);
  (copy.older != nullptr ? at(copy.older->copies, group).newer : list.oldest) = copy.newer;
  (copy.newer != nullptr ? at(copy.newer->copies, group).older : list.newest) = copy.older;
  copy.older = copy.newer = nullptr;
}

}  // namespace ts
