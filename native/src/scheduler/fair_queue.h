// Whose prompt tokens come next: deficit round robin over sessions, shortest first, with ageing.
//
// A session is charged for the prompt tokens computed for it and is passed over while it owes any,
// until every session that could go owes some. Among those that may go, the request with the fewest
// tokens left goes first; waiting makes a request count as shorter. Priority stands above all.
// It knows sessions and their waiting requests, not whether there is room for them.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <span>
#include <vector>

#include "scheduler/request.h"

namespace ts {

struct Session {
  uint64_t id;
  int64_t deficit = 0;     // prompt tokens that it may still have in this round
  uint64_t round = 0;      // newest refill that reached it
  int32_t unfinished = 0;  // its requests whose prompt is not wholly planned
  std::set<Request *, Earlier> waiting;
};

class FairQueue {
 public:
  explicit FairQueue(int64_t quantum_tokens) : quantum_(quantum_tokens) {}

  // A request enters its session when its prompt is to be computed and leaves it when all of it is
  // planned; in between it may wait.
  void enter(Request &request, uint64_t session);
  void leave(Request &request);
  void wait(Request &request);
  void stop_waiting(Request &request);
  void charge(Request &request, int32_t tokens) { request.session->deficit -= tokens; }

  int32_t waiting() const { return waiting_; }

  // Returns who goes next: one of `running`, or, if `admit`, the first of each session's waiting
  // requests; null if none may. `able(request)` says whether it can go now.
  template <class Able>
  Request *next(int64_t now_us, std::span<Request *const> running, bool admit, Able able);

  // Returns an empty text, or what is wrong.
  std::string audit() const;

 private:
  static int64_t weight(const Request &request, int64_t now_us) {
    constexpr int64_t kAgeUsPerToken = 250;
    return request.sequence.known() - request.planned -
           (now_us - request.submitted_us) / kAgeUsPerToken;
  }
  static bool before(const Request &a, const Request &b, int64_t now_us);
  void collect(std::span<Request *const> running, bool admit, auto able);
  void refill();

  int64_t quantum_;
  uint64_t round_ = 0;
  int32_t waiting_ = 0;
  std::map<uint64_t, Session> sessions_;
  std::vector<Request *> candidates_;
};

inline bool FairQueue::before(const Request &a, const Request &b, int64_t now_us) {
  const int64_t left_a = weight(a, now_us), left_b = weight(b, now_us);
  return left_a != left_b ? left_a < left_b : a.arrival < b.arrival;
}

// Fills `candidates_` with those of the highest priority among all that can go.
void FairQueue::collect(std::span<Request *const> running, bool admit, auto able) {
  candidates_.clear();
  const auto add = [this](Request *request) {
    if (!candidates_.empty() && candidates_[0]->priority > request->priority) return;
    if (!candidates_.empty() && candidates_[0]->priority < request->priority) candidates_.clear();
    candidates_.push_back(request);
  };
  for (Request *request : running) {
    if (able(*request)) add(request);
  }
  if (!admit) return;
  for (auto &[id, session] : sessions_) {
    for (Request *request : session.waiting) {
      if (!able(*request)) continue;
      add(request);
      break;
    }
  }
}

template <class Able>
Request *FairQueue::next(int64_t now_us, std::span<Request *const> running, bool admit, Able able) {
  collect(running, admit, able);
  if (candidates_.empty()) return nullptr;
  for (;; refill()) {
    Request *best = nullptr;
    for (Request *request : candidates_) {
      if (request->session->deficit <= 0) continue;
      if (best == nullptr || before(*request, *best, now_us)) best = request;
    }
    if (best != nullptr) return best;
  }
}

}  // namespace ts
