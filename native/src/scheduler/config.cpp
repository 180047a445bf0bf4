#include "scheduler/config.h"

namespace ts {
namespace {

constexpr int32_t kPageTokensMax = 65'536;
constexpr int32_t kSlotsMax = 65'536;
constexpr int32_t kTokensMax = 1 << 28;
constexpr int32_t kWidthMax = 64;

std::string out_of_range(const std::string &what, int64_t seen, int64_t low, int64_t high) {
  if (seen >= low && seen <= high) return {};
  return what + " is " + std::to_string(seen) + "; allowed are " + std::to_string(low) + " to " +
         std::to_string(high);
}

}  // namespace

std::string check_config(const Config &config) {
  const struct {
    const char *what;
    int64_t seen, low, high;
  } ranges[] = {
      {"page_tokens", config.page_tokens, 1, kPageTokensMax},
      {"groups", config.groups, 1, kGroupsMax},
      {"slots", config.slots, 1, kSlotsMax},
      {"step_tokens", config.step_tokens, 1, kTokensMax},
      {"step_tokens_mixed", config.step_tokens_mixed, 1, kTokensMax},
      {"max_model_len", config.max_model_len, 1, kTokensMax},
      {"overlap", config.overlap, 0, 1},
      {"width", config.width, 1, kWidthMax},
      {"prefix_caching", config.prefix_caching, 0, 1},
      {"growth_tokens", config.growth_tokens, 0, kTokensMax},
  };
  for (const auto &range : ranges) {
    std::string wrong = out_of_range(range.what, range.seen, range.low, range.high);
    if (!wrong.empty()) return wrong;
  }
  for (int32_t g = 0; g < config.groups; ++g) {
    const std::string group = "[" + std::to_string(g) + "]";
    std::string wrong = out_of_range("pages_total" + group, config.pages_total[g], 2, kTokensMax);
    if (wrong.empty()) wrong = out_of_range("windows" + group, config.windows[g], 0, kTokensMax);
    if (!wrong.empty()) return wrong;
  }
  return {};
}

}  // namespace ts
