#include "scheduler/admission.h"

#include <algorithm>
#include <utility>

namespace ts {
namespace {

// Tokens that a request is expected to have before another one makes room.
int32_t expected_tokens(const Config &config, const Request &request) {
  return std::min(request.tokens_max(),
                  request.sequence.known() + request.pending + config.growth_tokens);
}

// Pages of `group` that the running requests will ask for.
int32_t growth(const Board &board, int32_t group) {
  int32_t sum = 0;
  for (Request *request : board.running) {
    const int32_t peak =
        pages_peak(board.config(), group, expected_tokens(board.config(), *request));
    sum += std::max(0, peak - request->residency().table(group).held());
  }
  return sum;
}

// Whole pages before the page of the last known token: that page is written again.
int32_t hit_pages_max(const Config &config, const Request &request) {
  const int32_t tokens = request.sequence.known() - (planted(Bug::kLeasedPageWritten) ? 0 : 1);
  return tokens / config.page_tokens;
}

bool has_room(const Board &board, const Request &request, const std::vector<Node *> &hit) {
  const Config &config = board.config();
  for (int32_t g = 0; g < config.groups; ++g) {
    const int32_t begin = first_page(config, g, length(hit) * config.page_tokens);
    const int32_t leased = length(hit) - begin;
    int32_t needed = pages_peak(config, g, expected_tokens(config, request)) - leased;
    for (int32_t i = begin; i < length(hit); ++i) needed += at(at(hit, i)->copies, g).leases == 0;
    if (needed + growth(board, g) > board.memory.available(g)) return false;
  }
  return true;
}

}  // namespace

int32_t pages_peak(const Config &config, int32_t group, int32_t tokens) {
  const int32_t all = pages_for(config, tokens);
  if (is_full(config, group)) return all;
  // A window, what the steps in flight may add to it, and a page cut at each end.
  return std::min(
      all, pages_for(config, config.windows[group] + (config.overlap + 1) * config.width) + 2);
}

std::string never_fits(const Config &config, int64_t prompt_tokens, int64_t max_tokens) {
  const int64_t tokens = prompt_tokens + max_tokens;
  const std::string asked = "The prompt has " + std::to_string(prompt_tokens) +
                            " tokens and max_tokens is " + std::to_string(max_tokens) + ", " +
                            std::to_string(tokens) + " in all";
  const std::string mend = "; shorten the prompt or lower max_tokens.";
  if (tokens > config.max_model_len) {
    return asked + "; the model's context has " + std::to_string(config.max_model_len) + " tokens" +
           mend;
  }
  for (int32_t g = 0; g < config.groups; ++g) {
    const int32_t needed = pages_peak(config, g, static_cast<int32_t>(tokens));
    const int32_t pages = config.pages_total[g] - 1;
    if (needed <= pages) continue;
    return asked + ": " + std::to_string(needed) + " pages of the KV cache; it has " +
           std::to_string(pages) + " pages of " + std::to_string(config.page_tokens) + " tokens" +
           mend;
  }
  return {};
}

int32_t pages_listed_max(const Config &config) {
  int32_t sum = 0;
  for (int32_t g = 0; g < config.groups; ++g) {
    sum += std::min(pages_for(config, config.max_model_len), config.pages_total[g] - 1);
  }
  return sum;
}

Admission admit(Board &board, Request &request, int32_t &pages_listed) {
  const Config &config = board.config();
  Memory &memory = board.memory;
  if (memory.slots().free() == 0 || request.refused_at == memory.returns() + 1)
    return Admission::kNoRoom;
  std::vector<Node *> hit;
  if (config.prefix_caching != 0) {
    const bool scores = request.scores() && !planted(Bug::kScoredFromCache);
    const int32_t pages_max = scores ? 0 : hit_pages_max(config, request);
    hit = memory.index().match(request.sequence, pages_max);
    request.waits =
        length(hit) < pages_max && board.claims.blocks(request, request.sequence.hash(length(hit)));
    if (request.waits) {
      request.waits_for = request.sequence.hash(length(hit));
      return Admission::kShared;
    }
  }
  if (!has_room(board, request, hit)) {
    request.refused_at = memory.returns() + 1;
    return Admission::kNoRoom;
  }
  const int32_t listed = length(hit) * config.groups;
  if (pages_listed > 0 && pages_listed + listed > pages_listed_max(config))
    return Admission::kLater;
  pages_listed += listed;

  const int32_t hit_tokens =
      std::min(length(hit) * config.page_tokens, request.sequence.known() - 1);
  if (config.prefix_caching != 0) {
    board.claims.claim(request, length(hit), request.sequence.known() / config.page_tokens);
  }
  board.post(request, Event::kAdmit, Residency(memory, std::move(hit)));
  request.planned = hit_tokens;
  board.tracer.note(TS_POINT_ADMITTED, request.id, 0, hit_tokens);
  if (request.cached_tokens < 0) {
    request.cached_tokens = hit_tokens;
    board.counters.tokens_cached += hit_tokens;
  }
  return Admission::kAdmitted;
}

}  // namespace ts
