#include "scheduler/room.h"

#include <algorithm>
#include <tuple>

namespace ts {
namespace {

constexpr int32_t kRetractionsMax = 2;

// Tokens to compute again if `request` is retracted: what others lease stays cached.
int32_t tokens_lost(Request &request, const Config &config) {
  return request.computed() - request.residency().shared_pages() * config.page_tokens;
}

// Who gives its pages up (perhaps the one that asks): the one that loses least among those that
// have a page of `group` for themselves; never the oldest running, none a third time while there is
// another, none that has a row in this step.
Request *victim(const Board &board, int32_t group, StepId step) {
  const auto cost = [&](Request &request) {
    return std::tuple(request.residency().exclusive(group) == 0,
                      request.retractions >= kRetractionsMax, request.priority,
                      tokens_lost(request, board.config()), UINT64_MAX - request.arrival);
  };
  Request *best = nullptr;
  for (Request *request : board.running) {
    if (request == board.running.front() && !planted(Bug::kOldestRetracted)) continue;
    if (request->planned_in == step) continue;
    if (best == nullptr || cost(*request) < cost(*best)) best = request;
  }
  return best;
}

}  // namespace

Room make_room(Board &board, Request &request, int32_t tokens, StepId step) {
  for (int32_t g = 0; g < board.config().groups; ++g) {
    const int32_t missing = request.residency().missing(g, tokens);
    while (missing > board.memory.available(g)) {
      if (missing <= board.memory.available(g) + board.returning(g)) return Room::kComing;
      Request *loser = victim(board, g, step);
      if (loser == nullptr) return Room::kComing;
      ++loser->retractions;
      ++board.counters.retractions;
      board.counters.tokens_retracted += std::max(0, tokens_lost(*loser, board.config()));
      board.post(*loser, Event::kRetract);
      if (loser == &request) return Room::kNone;
    }
  }
  request.residency().cover(tokens);
  return Room::kMade;
}

}  // namespace ts
