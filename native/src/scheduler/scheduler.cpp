#include "scheduler/scheduler.h"

#include <utility>

#include "error.h"

namespace ts {
namespace {

constexpr int32_t kRowFailed = -1;  // in the place of a count

int32_t fail_request(ts_status status, RequestId request, const std::string &why) {
  return fail(status, "Request " + std::to_string(request) + ": " + why);
}

}  // namespace

// ---- requests come and go

int32_t Scheduler::check_submission(const ts_submission &submission) const {
  const auto refuse = [&](ts_status status, const std::string &why) {
    return fail_request(status, submission.request, why);
  };
  if (board_.find(submission.request) != nullptr)
    return refuse(TS_ERR_DUPLICATE, "that id is in use");
  if (submission.prompt_len < 1) return refuse(TS_ERR_ARGUMENT, "the prompt has no tokens");
  if (submission.resume_len < 0 || submission.end_ids_len < 0) {
    return refuse(TS_ERR_ARGUMENT, "a length is negative");
  }
  if (submission.max_tokens < 0) {
    return refuse(TS_ERR_ARGUMENT, "max_tokens is " + std::to_string(submission.max_tokens) +
                                       ", at least 0 is needed");
  }
  if (submission.score < 0 || submission.score > 1) {
    return refuse(TS_ERR_ARGUMENT,
                  "score is " + std::to_string(submission.score) + "; allowed are 0 and 1");
  }
  if (submission.resume_len > 0 && submission.resume_len >= submission.max_tokens) {
    return refuse(TS_ERR_ARGUMENT, std::to_string(submission.resume_len) +
                                       " output tokens are known and max_tokens is " +
                                       std::to_string(submission.max_tokens) +
                                       ": nothing is left to do");
  }
  const std::string unfit = never_fits(config(), submission.prompt_len, submission.max_tokens);
  return unfit.empty() ? TS_OK : fail(TS_ERR_NEVER_FITS, unfit);
}

int32_t Scheduler::submit(int64_t now_us, const ts_submission &submission) {
  if (tombstones_.contains(submission.request)) {
    advance(now_us);
    tombstones_.remove(submission.request);
    return 0;
  }
  if (const int32_t status = check_submission(submission); status != TS_OK) return status;
  advance(now_us);
  const auto span = [](const int32_t *ids, int32_t count) {
    return std::span(ids, static_cast<size_t>(count));
  };
  const auto end_ids = span(submission.end_ids, submission.end_ids_len);
  board_.add(std::make_unique<Request>(Request{
      .id = submission.request,
      .arrival = ++next_arrival_,
      .submitted_us = now_us_,
      .session_id = submission.session,
      .priority = submission.priority,
      .max_tokens = submission.max_tokens,
      .end_ids = {end_ids.begin(), end_ids.end()},
      .score = submission.score != 0,
      .sequence = Sequence(config().page_tokens, {submission.space_low, submission.space_high},
                           span(submission.prompt, submission.prompt_len),
                           span(submission.resume, submission.resume_len), submission.max_tokens),
  }));
  return 1;
}

int32_t Scheduler::cancel(int64_t now_us, RequestId id) {
  advance(now_us);
  Request *request = board_.find(id);
  if (request == nullptr) {
    tombstones_.add(id);
    return 0;
  }
  return end(*request, Event::kAbort);
}

int32_t Scheduler::dropped(int64_t now_us, RequestId id) {
  advance(now_us);
  tombstones_.remove(id);
  return TS_OK;
}

int32_t Scheduler::verdict(int64_t now_us, RequestId id, int32_t tokens_kept) {
  Request *request = board_.find(id);
  if (request != nullptr && (tokens_kept < 0 || tokens_kept > request->sequence.outputs())) {
    return fail_request(TS_ERR_ARGUMENT, id,
                        "a verdict keeps " + std::to_string(tokens_kept) + " output tokens of " +
                            std::to_string(request->sequence.outputs()));
  }
  advance(now_us);
  return request == nullptr ? 0 : end(*request, Event::kVerdict);
}

// Ends a request from outside; returns 1 if it was live.
int32_t Scheduler::end(Request &request, Event event) {
  const bool live = is_live(request.kind());
  if (!board_.post(request, event))
    return fail_request(TS_ERR_ILLEGAL, request.id, "that event is illegal now");
  board_.reap(request);
  return live ? 1 : 0;
}

// ---- steps go and come back

int32_t Scheduler::plan(int64_t now_us, ts_plan &plan) {
  ts_plan limits{};
  Planner::limits(config(), limits);
  if (plan.openings_max < limits.openings_max || plan.rows_max < limits.rows_max ||
      plan.ids_max < limits.ids_max || plan.pages_max < limits.pages_max) {
    return fail(TS_ERR_CAPACITY,
                "A buffer of the plan is smaller than ts_scheduler_plan_limits asks for");
  }
  advance(now_us);
  return planner_.plan(now_us_, plan) ? 1 : 0;
}

int32_t Scheduler::check_oldest(StepId step) const {
  const auto &steps = board_.steps;
  if (!steps.empty() && step == steps.front().id) return TS_OK;
  if (steps.empty() || step < steps.front().id || step > steps.back().id) {
    return fail(TS_ERR_UNKNOWN, "Step " + std::to_string(step) + " is not in flight");
  }
  return fail(TS_ERR_ILLEGAL, "Step " + std::to_string(step) +
                                  " is not the oldest in flight, which is " +
                                  std::to_string(steps.front().id));
}

int32_t Scheduler::check_result(const Step &step, std::span<const int32_t> counts,
                                std::span<const int32_t> ids) const {
  const std::string where = "The result of step " + std::to_string(step.id);
  size_t rows = 0, sum = 0;
  for (const StepRow &row : step.rows) {
    if (row.ids_max == 0) continue;
    if (rows == counts.size()) break;
    const int32_t count = counts[rows++];
    if (count == kRowFailed) continue;
    if (count < 1 || count > row.ids_max) {
      return fail(TS_ERR_ARGUMENT, where + " has " + std::to_string(count) +
                                       " ids for a row; allowed are 1 to " +
                                       std::to_string(row.ids_max) + ", and -1 if it failed");
    }
    sum += static_cast<size_t>(count);
  }
  const auto sampled = std::count_if(step.rows.begin(), step.rows.end(),
                                     [](const StepRow &row) { return row.ids_max > 0; });
  if (counts.size() != static_cast<size_t>(sampled) || sum != ids.size()) {
    return fail(TS_ERR_ARGUMENT, where + " has " + std::to_string(counts.size()) + " counts and " +
                                     std::to_string(ids.size()) + " ids; its plan samples " +
                                     std::to_string(sampled) + " rows and the counts sum to " +
                                     std::to_string(sum));
  }
  if (std::any_of(ids.begin(), ids.end(), [](int32_t id) { return id < 0; })) {
    return fail(TS_ERR_ARGUMENT, where + " has a negative id");
  }
  return TS_OK;
}

int32_t Scheduler::result(int64_t now_us, StepId id, int32_t step_us,
                          std::span<const int32_t> counts, std::span<const int32_t> ids,
                          std::span<ts_outcome> outcomes) {
  if (const int32_t status = check_oldest(id); status != TS_OK) return status;
  if (const int32_t status = check_result(board_.steps.front(), counts, ids); status != TS_OK)
    return status;
  if (outcomes.size() < counts.size()) {
    return fail(TS_ERR_CAPACITY, "There is room for " + std::to_string(outcomes.size()) +
                                     " outcomes of " + std::to_string(counts.size()) + " rows");
  }
  advance(now_us);
  board_.counters.step_us += step_us;
  board_.forget_ended();
  const Step step = board_.close_oldest();
  size_t sampled = 0, offset = 0, live = 0;
  for (const StepRow &row : step.rows) {
    const int32_t told = row.ids_max > 0 ? counts[sampled++] : 0;
    const bool failed = told == kRowFailed;
    const size_t count = failed ? 0 : static_cast<size_t>(told);
    ts_outcome outcome{.request = row.request->id,
                       .first = 0,
                       .offset = static_cast<int32_t>(offset),
                       .count = 0,
                       .finish = 0};
    if (close_row(id, row, failed, ids.subspan(offset, count), outcome)) outcomes[live++] = outcome;
    offset += count;
  }
  return static_cast<int32_t>(live);
}

// Returns whether `outcome` was filled in: the row was sampled and its request was live.
bool Scheduler::close_row(StepId step, const StepRow &row, bool failed,
                          std::span<const int32_t> ids, ts_outcome &outcome) {
  Request &request = *row.request;
  const bool live = is_live(request.kind()) ||
                    (planted(Bug::kRowAfterEndDelivered) && request.kind() == Kind::kFinished);
  board_.post(request, Event::kResult);
  if (failed) {
    if (live) fail_row(request, outcome);
    board_.reap(request);
    return live;
  }
  const bool lost = planted(Bug::kTokenLostInRetract) && request.kind() == Kind::kRetracted;
  const bool delivered = live && !lost && !ids.empty();
  if (delivered) outcome.finish = accept(request, ids, outcome);
  if (delivered) board_.tracer.note(TS_POINT_RESULT, request.id, step, outcome.count);
  if (live) written(request, row);
  if (delivered && outcome.finish != Outcome::kGoesOn) board_.post(request, Event::kFinish);
  board_.reap(request);
  return delivered;
}

// Ends a request whose row failed. What it has read or written may be damaged: nobody finds a page
// any more that begins with its first, and nobody who holds one publishes below it.
void Scheduler::fail_row(Request &request, ts_outcome &outcome) {
  outcome.first = request.sequence.outputs();
  outcome.finish = Outcome::kFailed;
  const Residency *residency = residency_of(request.state);
  if (residency != nullptr && !residency->path().empty()) {
    board_.memory.index().withdraw(residency->path().front());
    for (Request *running : board_.running) {
      Residency &held = running->residency();
      if (held.path().empty() || held.path().front()->indexed) continue;
      if (!planted(Bug::kWithdrawnGrows)) held.stop_publishing();
      board_.claims.drop(*running);
    }
  }
  board_.post(request, Event::kFail);
}

// Appends the ids up to the first that ends the request; returns how it ends.
int32_t Scheduler::accept(Request &request, std::span<const int32_t> ids, ts_outcome &outcome) {
  outcome.first = request.sequence.outputs();
  outcome.count = 0;
  if (request.outputs_left() <= 0) return Outcome::kLength;  // max_tokens is 0
  for (const int32_t id : ids) {
    request.sequence.append(id);
    ++outcome.count;
    if (request.ends_with(id)) return Outcome::kStop;
    if (request.outputs_left() <= 0) return Outcome::kLength;
  }
  return Outcome::kGoesOn;
}

// The KV of a row is known to be written: publish whole pages, release those out of the window.
void Scheduler::written(Request &request, const StepRow &row) {
  Residency *residency = residency_of(request.state);
  if (residency == nullptr) return;
  // Of a decode row's tokens, those that were accepted: all known ones but the last, which the next
  // row computes.
  const int32_t unwritten = planted(Bug::kRejectedTokensPublished) ? 0 : 1;
  const int32_t kv_tokens =
      row.decode ? request.sequence.known() - unwritten : row.context + row.tokens;
  board_.claims.settle(request, residency->publish(request.sequence, kv_tokens));
  residency->slide(kv_tokens);
}

int32_t Scheduler::step_failed(int64_t now_us, StepId id, std::span<uint64_t> requests) {
  if (const int32_t status = check_oldest(id); status != TS_OK) return status;
  if (requests.size() < board_.steps.front().rows.size()) {
    return fail(TS_ERR_CAPACITY, "There is room for " + std::to_string(requests.size()) +
                                     " requests of " +
                                     std::to_string(board_.steps.front().rows.size()) + " rows");
  }
  advance(now_us);
  board_.forget_ended();
  const Step step = board_.close_oldest();
  size_t ended = 0;
  for (const StepRow &row : step.rows) {
    if (is_live(row.request->kind())) requests[ended++] = row.request->id;
    board_.post(*row.request, Event::kFail);
    board_.reap(*row.request);
  }
  return static_cast<int32_t>(ended);
}

int32_t Scheduler::executor_lost(int64_t now_us) {
  advance(now_us);
  board_.forget_ended();
  const std::vector<Request *> running = board_.running;
  for (Request *request : running) {
    ++board_.counters.losses;
    board_.counters.tokens_lost += request->computed();
    board_.post(*request, Event::kLost);
  }
  while (!board_.steps.empty()) {
    const Step step = board_.close_oldest();
    for (const StepRow &row : step.rows) board_.reap(*row.request);
  }
  if (!planted(Bug::kIndexSurvivesExecutor)) board_.memory.index().flush();
  return TS_OK;
}

int32_t Scheduler::flush(int64_t now_us) {
  advance(now_us);
  for (Request *request : board_.running) {
    board_.claims.drop(*request);
    if (!planted(Bug::kFlushKeepsLeased)) request->residency().stop_publishing();
  }
  return board_.memory.index().flush();
}

// ---- questions

int32_t Scheduler::cached_tokens(RequestId id) const {
  const std::optional<int32_t> tokens = board_.cached_tokens(id);
  if (!tokens) return fail_request(TS_ERR_UNKNOWN, id, "there is none");
  return std::max(*tokens, 0);
}

int32_t Scheduler::state(RequestId id) const {
  const Request *request = board_.find(id);
  if (request == nullptr) return fail_request(TS_ERR_UNKNOWN, id, "there is none");
  return static_cast<int32_t>(request->kind());
}

void Scheduler::stats(ts_scheduler_stats_t &stats) const {
  const Counters &counters = board_.counters;
  stats = {};
  stats.steps = counters.steps;
  stats.retractions = counters.retractions;
  stats.tokens_prefilled = counters.tokens_prefilled;
  stats.tokens_decoded = counters.tokens_decoded;
  stats.tokens_cached = counters.tokens_cached;
  stats.step_us = counters.step_us;
  stats.tokens_retracted = counters.tokens_retracted;
  stats.losses = counters.losses;
  stats.tokens_lost = counters.tokens_lost;
  stats.requests_waiting = board_.queue.waiting() + static_cast<int32_t>(board_.retracted.size());
  stats.requests_running = length(board_.running);
  stats.steps_in_flight = length(board_.steps);
  stats.tombstones = tombstones_.size();
  for (int32_t g = 0; g < config().groups; ++g) {
    const Ledger &pages = board_.memory.pages(g);
    stats.pages_total[g] = pages.total() - 1;
    stats.pages_free[g] = pages.count(PageClass::kFree);
    stats.pages_owned[g] = pages.count(PageClass::kOwned);
    stats.pages_cached_idle[g] = pages.count(PageClass::kCachedIdle);
    stats.pages_cached_leased[g] = pages.count(PageClass::kCachedLeased);
    stats.pages_zombie[g] = pages.count(PageClass::kZombie);
  }
  stats.slots_free = board_.memory.slots().free();
  stats.slots_zombie = board_.memory.slots().count(PageClass::kZombie);
}

int32_t Scheduler::check() const {
  std::string wrong = board_.audit();
  return wrong.empty() ? TS_OK
                       : fail(TS_ERR_INVARIANT, "The scheduler's books are wrong: " + wrong);
}

}  // namespace ts
