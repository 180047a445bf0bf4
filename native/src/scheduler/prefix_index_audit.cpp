// The audit of the prefix index: every node, copy, lease and list, recounted.

#include <algorithm>

#include "scheduler/prefix_index.h"

namespace ts {

std::string PrefixIndex::audit() const {
  int32_t live = 0;
  PerGroup<int32_t> leased{};
  for (const auto &node : arena_) {
    if (node->tokens.empty()) continue;
    ++live;
    if (std::string wrong = audit_node(*node); !wrong.empty()) return wrong;
    for (int32_t g = 0; g < config_.groups; ++g) at(leased, g) += at(node->copies, g).leases > 0;
  }
  if (live != nodes_live_) return "prefix index: the count of nodes is wrong";
  for (int32_t g = 0; g < config_.groups; ++g) {
    if (at(leased, g) != at(ledgers_, g).count(PageClass::kCachedLeased)) {
      return "group " + std::to_string(g) + ": cached_leased pages and leased copies differ";
    }
    if (std::string wrong = audit_list(g); !wrong.empty()) return wrong;
  }
  return {};
}

std::string PrefixIndex::audit_node(const Node &node) const {
  if (node.parent != nullptr && node.parent->leases < node.leases) {
    return "prefix index: a node has more leases than its parent";
  }
  if (node.parent != nullptr && node.parent->tokens.empty()) {
    return "prefix index: a node outlived its parent";
  }
  if (node.parent != nullptr && node.indexed && !node.parent->indexed) {
    return "prefix index: a node that can be found hangs on a hidden one";
  }
  for (int32_t g = 0; g < config_.groups; ++g) {
    const Copy &copy = at(node.copies, g);
    const auto where = [&] {
      return "group " + std::to_string(g) + " page " + std::to_string(copy.page);
    };
    if (copy.page == 0) {
      if (copy.leases != 0) return where() + ": a lease on no page";
      if (is_full(config_, g) && node.indexed) return "prefix index: a node lacks its full copy";
      continue;
    }
    const PageClass expected = copy.leases > 0 ? PageClass::kCachedLeased : PageClass::kCachedIdle;
    const PageClass seen = at(ledgers_, g).class_of(copy.page);
    if (seen != expected)
      return where() + " is " + name(seen) + ", its leases say " + name(expected);
    const auto duplicates =
        std::count_if(node.duplicates.begin(), node.duplicates.end(),
                      [g](const Duplicate &duplicate) { return duplicate.group == g; });
    if (is_full(config_, g) && copy.leases + duplicates != node.leases) {
      return where() + ": copy, duplicates and node differ in leases";
    }
    if (copy.leases == 0 && duplicates > 0) return where() + ": a duplicate waits for no one";
    if (!node.indexed && copy.leases == 0) return where() + ": hidden, idle and not freed";
  }
  return {};
}

std::string PrefixIndex::audit_list(int32_t group) const {
  int32_t idle = 0;
  std::unordered_map<const Node *, int32_t> children_passed;
  for (const Node *node = at(idle_, group).oldest; node != nullptr;
       node = at(node->copies, group).newer) {
    ++idle;
    const Copy &copy = at(node->copies, group);
    if (copy.leases != 0)
      return "group " + std::to_string(group) + ": a leased page can be evicted";
    if (!is_full(config_, group)) continue;
    if (children_passed[node] != node->children)
      return "prefix index: a parent goes before its child";
    if (node->parent != nullptr) ++children_passed[node->parent];
  }
  if (idle != at(ledgers_, group).count(PageClass::kCachedIdle)) {
    return "group " + std::to_string(group) + ": cached_idle pages and the idle list differ";
  }
  return {};
}

}  // namespace ts
