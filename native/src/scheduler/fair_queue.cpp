#include "scheduler/fair_queue.h"

#include <algorithm>
#include <string>
#include <utility>

namespace ts {

void FairQueue::enter(Request &request, uint64_t session) {
  const auto [place, created] = sessions_.try_emplace(session);
  if (created) place->second = {.id = session, .deficit = quantum_, .waiting = {}};
  request.session = &place->second;
  ++place->second.unfinished;
}

void FairQueue::leave(Request &request) {
  Session *session = std::exchange(request.session, nullptr);
  // An idle session keeps nothing: neither credit nor debt.
  if (--session->unfinished == 0) sessions_.erase(session->id);
}

void FairQueue::wait(Request &request) {
  request.session->waiting.insert(&request);
  ++waiting_;
}

void FairQueue::stop_waiting(Request &request) {
  waiting_ -= static_cast<int32_t>(request.session->waiting.erase(&request));
}

// A new round for the sessions that could go.
void FairQueue::refill() {
  ++round_;
  for (Request *request : candidates_) {
    Session &session = *request->session;
    if (std::exchange(session.round, round_) == round_) continue;
    session.deficit = std::min(session.deficit + quantum_, quantum_);
  }
}

std::string FairQueue::audit() const {
  int32_t waiting = 0;
  for (const auto &[id, session] : sessions_) {
    waiting += static_cast<int32_t>(session.waiting.size());
    if (session.unfinished < static_cast<int32_t>(session.waiting.size())) {
      return "session " + std::to_string(id) + " has more waiting requests than unfinished ones";
    }
    for (const Request *request : session.waiting) {
      if (request->session == &session && request->kind() == Kind::kSubmitted) continue;
      return "request " + std::to_string(request->id) + " waits in a session but is not Submitted";
    }
  }
  if (waiting != waiting_) return "fair queue: the count of waiting requests is wrong";
  return {};
}

}  // namespace ts
