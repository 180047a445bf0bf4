// Words shared by all files of the scheduler.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tokenspeed.h"

namespace ts {

using RequestId = uint64_t;
using StepId = uint64_t;
using Config = ts_scheduler_config;

inline constexpr int32_t kGroupsMax = 4;

template <class T>
using PerGroup = std::array<T, kGroupsMax>;

template <class Container>
int32_t length(const Container &container) {
  return static_cast<int32_t>(container.size());
}

// `vector[index]` for the signed indices that the core counts with.
template <class T>
T &at(std::vector<T> &vector, int32_t index) {
  return vector[static_cast<size_t>(index)];
}
template <class T>
const T &at(const std::vector<T> &vector, int32_t index) {
  return vector[static_cast<size_t>(index)];
}
template <class T>
T &at(PerGroup<T> &groups, int32_t group) {
  return groups[static_cast<size_t>(group)];
}
template <class T>
const T &at(const PerGroup<T> &groups, int32_t group) {
  return groups[static_cast<size_t>(group)];
}

// Pages that hold `tokens` tokens.
inline int32_t pages_for(const Config &config, int32_t tokens) {
  return (tokens + config.page_tokens - 1) / config.page_tokens;
}

inline bool is_full(const Config &config, int32_t group) { return config.windows[group] == 0; }

// First page that a query at `position` reads in `group`: 0, or the page where its window begins.
inline int32_t first_page(const Config &config, int32_t group, int32_t position) {
  if (is_full(config, group) || position <= config.windows[group]) return 0;
  return (position - config.windows[group]) / config.page_tokens;
}

}  // namespace ts
