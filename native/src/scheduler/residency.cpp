#include "scheduler/residency.h"

#include <algorithm>
#include <utility>

namespace ts {

Residency::Residency(Memory &memory, std::vector<Node *> hit)
    : memory_(&memory),
      slot_(memory.slots().take()),
      path_(std::move(hit)),
      publishes_(memory.config().prefix_caching != 0) {
  const Config &config = memory.config();
  for (Node *node : path_) memory.index().lease(node);
  for (int32_t g = 0; g < config.groups; ++g) {
    Table &held = table(g);
    held.first = held.listed = first_page(config, g, length(path_) * config.page_tokens);
    held.pages.resize(path_.size());
    for (int32_t i = held.first; i < length(path_); ++i) {
      at(held.pages, i) = at(at(path_, i)->copies, g).page;
      if (!is_full(config, g)) memory.index().lease_copy(at(path_, i), g);
    }
  }
}

Residency::Residency(Residency &&other) noexcept
    : last_step(other.last_step),
      opened(other.opened),
      memory_(std::exchange(other.memory_, nullptr)),
      slot_(other.slot_),
      path_(std::move(other.path_)),
      tables_(std::move(other.tables_)),
      own_(other.own_),
      publishes_(other.publishes_) {}

Residency &Residency::operator=(Residency &&other) noexcept {
  if (this == &other) return *this;
  release();
  last_step = other.last_step;
  opened = other.opened;
  memory_ = std::exchange(other.memory_, nullptr);
  slot_ = other.slot_;
  path_ = std::move(other.path_);
  tables_ = std::move(other.tables_);
  own_ = other.own_;
  publishes_ = other.publishes_;
  return *this;
}

int32_t Residency::missing(int32_t group, int32_t tokens) const {
  return std::max(0, pages_for(memory_->config(), tokens) - length(table(group).pages));
}

int32_t Residency::room(int32_t group, int32_t pages) const {
  return (length(table(group).pages) + pages) * memory_->config().page_tokens;
}

void Residency::cover(int32_t tokens) {
  for (int32_t g = 0; g < memory_->config().groups; ++g) {
    for (int32_t left = missing(g, tokens); left > 0; --left) {
      table(g).pages.push_back(memory_->allocate(g));
    }
  }
}

int32_t Residency::publish(Sequence &sequence, int32_t kv_tokens) {
  const int32_t whole = kv_tokens / memory_->config().page_tokens;
  while (publishes_ && length(path_) < whole) {
    const int32_t index = length(path_);
    PerGroup<int32_t> pages{};
    for (int32_t g = 0; g < memory_->config().groups; ++g) {
      at(pages, g) = at(table(g).pages, index);
    }
    Node *parent = path_.empty() ? nullptr : path_.back();
    path_.push_back(memory_->index().publish(parent, sequence, index, pages));
  }
  return length(path_);
}

void Residency::slide(int32_t kv_tokens) {
  for (int32_t g = 0; g < memory_->config().groups; ++g) {
    Table &held = table(g);
    int32_t keep = first_page(memory_->config(), g, kv_tokens);
    if (planted(Bug::kWindowSlidEarly) && keep > 0) ++keep;
    for (keep = std::min(keep, length(held.pages)); held.first < keep; ++held.first) {
      release_page(g, held.first);
      at(held.pages, held.first) = 0;
    }
    held.listed = std::max(held.listed, held.first);
  }
}

int32_t Residency::exclusive(int32_t group) const {
  int32_t count = 0;
  const Table &held = table(group);
  for (int32_t i = held.first; i < length(held.pages); ++i) {
    count += !cached(group, i) || at(at(path_, i)->copies, group).leases == 1;
  }
  return count;
}

int32_t Residency::shared_pages() const {
  // Who leases a node leases its ancestors: the shared nodes come first.
  const auto alone = std::partition_point(path_.begin(), path_.end(),
                                          [](const Node *node) { return node->leases > 1; });
  return static_cast<int32_t>(alone - path_.begin());
}

void Residency::retire() {
  memory_->slots().move(slot_, PageClass::kOwned, PageClass::kZombie);
  for (int32_t g = 0; g < memory_->config().groups; ++g) {
    for (int32_t i = table(g).first; i < length(table(g).pages); ++i) {
      if (cached(g, i)) continue;
      memory_->pages(g).move(at(table(g).pages, i), PageClass::kOwned, PageClass::kZombie);
    }
  }
  own_ = PageClass::kZombie;
}

bool Residency::cached(int32_t group, int32_t index) const {
  return index < length(path_) &&
         at(at(path_, index)->copies, group).page == at(table(group).pages, index);
}

void Residency::release_page(int32_t group, int32_t index) {
  if (index < length(path_) && is_full(memory_->config(), group)) return;  // goes with its node
  if (!cached(group, index)) {
    const int32_t page = at(table(group).pages, index);
    memory_->pages(group).move(page, own_, PageClass::kFree);
    if (planted(Bug::kPageFreedTwice)) memory_->pages(group).move(page, own_, PageClass::kFree);
  } else {
    memory_->index().release_copy(at(path_, index), group);
  }
}

// Deepest pages first: the order in which the index will evict them.
void Residency::release() {
  if (memory_ == nullptr) return;
  for (int32_t g = 0; g < memory_->config().groups; ++g) {
    for (int32_t i = length(table(g).pages) - 1; i >= table(g).first; --i) release_page(g, i);
  }
  if (planted(Bug::kLeaseLeaked) && path_.size() > 2) path_.pop_back();
  for (; !path_.empty(); path_.pop_back()) {
    PerGroup<int32_t> pages{};
    for (int32_t g = 0; g < memory_->config().groups; ++g) {
      at(pages, g) = at(table(g).pages, length(path_) - 1);
    }
    memory_->index().release(path_.back(), pages);
  }
  if (!planted(Bug::kSlotLeaked)) memory_->slots().move(slot_, own_, PageClass::kFree);
  memory_ = nullptr;
}

}  // namespace ts
