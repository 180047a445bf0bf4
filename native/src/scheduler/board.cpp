#include "scheduler/board.h"

#include <algorithm>
#include <utility>

namespace ts {
namespace {

// Its prompt is not wholly planned: it counts in its session.
bool is_unfinished(Kind state) {
  return state == Kind::kSubmitted || state == Kind::kPrefilling || state == Kind::kRetracted;
}

bool arrived_before(const Request *a, const Request *b) { return a->arrival < b->arrival; }

}  // namespace

Request *Board::find(RequestId id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : found->second.get();
}

void Board::add(std::unique_ptr<Request> request) {
  queue.enter(*request, request->session_id);
  queue.wait(*request);
  no_room_at = 0;
  tracer.note(TS_POINT_SUBMITTED, request->id, 0, request->sequence.prompt_tokens());
  requests_.emplace(request->id, std::move(request));
}

bool Board::post(Request &request, Event event, std::optional<Residency> admitted) {
  const Kind from = request.kind();
  std::optional<Residency> held = std::move(admitted);
  if (!transition(request.state, event, held)) return false;
  const Kind to = request.kind();
  if (from == to) return true;
  tell(request, event, from, to);
  leave(request, from, to);
  enter(request, from, to);
  if (held) orphan(request, std::move(*held));
  const bool resumed = from == Kind::kRetracted && to == Kind::kPrefilling;
  const bool ended = holds_residency(from) && !is_live(to);
  closed = event == Event::kRetract || (closed && !resumed && !ended);
  return true;
}

void Board::tell(const Request &request, Event event, Kind from, Kind to) {
  if (to == Kind::kRetracted) {
    tracer.note(TS_POINT_RETRACTED, request.id, 0, request.planned);
  } else if (is_live(from) && !is_live(to)) {
    tracer.note(event == Event::kAbort ? TS_POINT_CANCELLED : TS_POINT_ENDED, request.id, 0,
                request.sequence.outputs());
  }
}

void Board::tell_waits(ts_wait reason) {
  for (auto &[id, request] : requests_) {
    if (request->kind() != Kind::kSubmitted) continue;
    const ts_wait own = request->waits ? TS_WAIT_PREFIX : reason;
    if (request->wait_told == own) continue;
    request->wait_told = own;
    tracer.note(TS_POINT_WAITS, id, 0, own);
  }
}

void Board::leave(Request &request, Kind from, Kind to) {
  if (from == Kind::kSubmitted) queue.stop_waiting(request);
  if (from == Kind::kRetracted) retracted.erase(&request);
  if (holds_residency(from) && !holds_residency(to)) {
    running.erase(std::lower_bound(running.begin(), running.end(), &request, arrived_before));
    if (!planted(Bug::kClaimKeptByDead)) claims.drop(request);
  }
  if (is_unfinished(from) && !is_unfinished(to)) queue.leave(request);
}

void Board::enter(Request &request, Kind from, Kind to) {
  if (is_unfinished(to) && !is_unfinished(from)) queue.enter(request, request.session_id);
  if (to == Kind::kRetracted) {
    request.planned = 0;
    request.refused_at = 0;
    retracted.insert(&request);
  }
  if (holds_residency(to) && !holds_residency(from)) {
    running.insert(std::upper_bound(running.begin(), running.end(), &request, arrived_before),
                   &request);
  }
}

// Gives what a request held to the newest step in flight that names it, or back at once.
void Board::orphan(Request &request, Residency residency) {
  if (planted(Bug::kPageLeakedOnAbort) && request.kind() == Kind::kAborting)
    residency.table(0).pages.pop_back();
  if (steps.empty() || residency.last_step < steps.front().id) return;
  if (planted(Bug::kTicketDroppedEarly)) return;
  PerGroup<int32_t> returning{};
  for (int32_t g = 0; g < config_.groups; ++g) at(returning, g) = residency.exclusive(g);
  residency.retire();
  Step &step = steps[static_cast<size_t>(residency.last_step - steps.front().id)];
  step.orphans.push_back({std::move(residency), returning});
}

void Board::pin(Request &request, Step &step) {
  ++request.in_flight;
  request.planned_in = step.id;
  request.residency().last_step = step.id;
}

Step Board::close_oldest() {
  Step step = std::move(steps.front());
  steps.pop_front();
  for (const StepRow &row : step.rows) {
    --row.request->in_flight;
    row.request->pending -= row.ids_max;
  }
  return step;
}

void Board::reap(Request &request) {
  if (is_live(request.kind()) || request.in_flight > 0) return;
  post(request, Event::kDrained);
  ended_.emplace_back(request.id, request.cached_tokens);
  requests_.erase(request.id);
}

int32_t Board::returning(int32_t group) const {
  int32_t sum = 0;
  for (const Step &step : steps) {
    for (const Orphan &orphan : step.orphans) sum += at(orphan.returning, group);
  }
  return sum;
}

std::optional<int32_t> Board::cached_tokens(RequestId id) const {
  if (const Request *request = find(id)) return request->cached_tokens;
  const auto found = std::find_if(ended_.begin(), ended_.end(),
                                  [id](const auto &entry) { return entry.first == id; });
  if (found == ended_.end()) return std::nullopt;
  return found->second;
}

}  // namespace ts
