// Who is where: every request, the lists by state, the steps in flight.
//
// Owns the requests and moves them (`post`) along the table; lists, claims and tickets follow the
// state here and nowhere else. It decides nothing.
// Invariant: a request is in exactly the list that its state names, and a residency that a step in
// flight names is owned by a running request or by that step.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "scheduler/claims.h"
#include "scheduler/fair_queue.h"
#include "scheduler/memory.h"
#include "scheduler/request.h"
#include "scheduler/step.h"
#include "scheduler/tracer.h"

namespace ts {

struct Counters {
  int64_t steps = 0;
  int64_t retractions = 0;
  int64_t tokens_prefilled = 0;
  int64_t tokens_decoded = 0;
  int64_t tokens_cached = 0;
  int64_t step_us = 0;
  int64_t tokens_retracted = 0;
  int64_t losses = 0;  // requests that ran when the executor was lost
  int64_t tokens_lost = 0;
};

class Board {
 public:
  explicit Board(const Config &config)
      : memory(config), queue(std::max(config.step_tokens, 1)), config_(memory.config()) {}

  const Config &config() const { return config_; }
  Request *find(RequestId id) const;
  // Tells the trace why each request that waits for admission does, where that is new.
  void tell_waits(ts_wait reason);
  void add(std::unique_ptr<Request> request);

  // Applies `event`; `admitted` is the residency that comes with Event::kAdmit. False if illegal.
  bool post(Request &request, Event event, std::optional<Residency> admitted = std::nullopt);

  // Opens the ticket of `step` on the request and what it holds.
  void pin(Request &request, Step &step);
  // Takes the oldest step out of flight: its tickets are void, its orphans go with the return
  // value.
  Step close_oldest();
  // Erases the request of a closed row if it is over and no step names it any more.
  void reap(Request &request);

  // Pages of `group` that come back by themselves as steps in flight are closed.
  int32_t returning(int32_t group) const;

  // Prefix hit of a request that is here or ended in the newest result; -1 if never admitted.
  std::optional<int32_t> cached_tokens(RequestId id) const;
  void forget_ended() { ended_.clear(); }

  // Returns an empty text, or what is wrong.
  std::string audit() const;

  Memory memory;
  FairQueue queue;
  Claims claims;
  std::vector<Request *> running;  // in order of arrival
  std::set<Request *, Earlier> retracted;
  std::deque<Step> steps;  // in flight, oldest first
  StepId next_step = 1;
  bool closed = false;      // nothing new until something finished or resumed
  uint64_t no_room_at = 0;  // Memory::returns() + 1 when the next new request found no room
  Counters counters;
  Tracer tracer;

 private:
  void leave(Request &request, Kind from, Kind to);
  void enter(Request &request, Kind from, Kind to);
  void orphan(Request &request, Residency residency);
  void tell(const Request &request, Event event, Kind from, Kind to);
  std::string audit_request(const Request &request) const;
  std::string audit_pages() const;

  const Config &config_;
  std::unordered_map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<std::pair<RequestId, int32_t>> ended_;
};

}  // namespace ts
