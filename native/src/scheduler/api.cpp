// The C ABI of the scheduler: checks pointers, catches exceptions, calls the core.

#include <memory>
#include <new>

#include "error.h"
#include "scheduler/scheduler.h"

struct ts_scheduler {
  explicit ts_scheduler(const ts::Config &config) : core(config) {}
  ts::Scheduler core;
};

namespace {

// Runs `body`, so that no exception crosses the border.
template <class Body>
auto guarded(Body body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return ts::fail(TS_ERR_MEMORY, "The allocator refused memory to the scheduler");
  } catch (const std::exception &error) {
    return ts::fail(TS_ERR_INVARIANT, std::string("Unexpected in the scheduler: ") + error.what());
  }
}

int32_t null_argument() { return ts::fail(TS_ERR_ARGUMENT, "A pointer is null"); }

template <class T>
std::span<T> span(T *data, int32_t count) {
  return {data, count > 0 ? static_cast<size_t>(count) : 0};
}

}  // namespace

extern "C" {

int32_t ts_scheduler_create(const ts_scheduler_config *config, ts_scheduler **scheduler) {
  if (config == nullptr || scheduler == nullptr) return null_argument();
  return guarded([&]() -> int32_t {
    const std::string wrong = ts::Scheduler::check_config(*config);
    if (!wrong.empty()) return ts::fail(TS_ERR_ARGUMENT, "The scheduler's configuration is wrong: " + wrong);
    *scheduler = new ts_scheduler(*config);
    return TS_OK;
  });
}

void ts_scheduler_destroy(ts_scheduler *scheduler) { delete scheduler; }

int32_t ts_scheduler_plan_limits(const ts_scheduler *scheduler, ts_plan *plan) {
  if (scheduler == nullptr || plan == nullptr) return null_argument();
  ts::Planner::limits(scheduler->core.config(), *plan);
  return TS_OK;
}

int32_t ts_scheduler_submit(ts_scheduler *scheduler, int64_t now_us, const ts_submission *submission) {
  if (scheduler == nullptr || submission == nullptr) return null_argument();
  if ((submission->prompt == nullptr && submission->prompt_len > 0) ||
      (submission->resume == nullptr && submission->resume_len > 0) ||
      (submission->end_ids == nullptr && submission->end_ids_len > 0)) {
    return null_argument();
  }
  return guarded([&] { return scheduler->core.submit(now_us, *submission); });
}

int32_t ts_scheduler_cancel(ts_scheduler *scheduler, int64_t now_us, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.cancel(now_us, request); });
}

int32_t ts_scheduler_dropped(ts_scheduler *scheduler, int64_t now_us, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.dropped(now_us, request); });
}

int32_t ts_scheduler_verdict(ts_scheduler *scheduler, int64_t now_us, uint64_t request, int32_t tokens_kept) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.verdict(now_us, request, tokens_kept); });
}

int32_t ts_scheduler_plan(ts_scheduler *scheduler, int64_t now_us, ts_plan *plan) {
  if (scheduler == nullptr || plan == nullptr || plan->openings == nullptr || plan->rows == nullptr ||
      plan->ids == nullptr || plan->pages == nullptr) {
    return null_argument();
  }
  return guarded([&] { return scheduler->core.plan(now_us, *plan); });
}

int32_t ts_scheduler_result(ts_scheduler *scheduler, int64_t now_us, uint64_t step, int32_t step_us, const int32_t *counts,
                            int32_t rows, const int32_t *ids, int32_t ids_len, ts_outcome *outcomes,
                            int32_t outcomes_max) {
  if (scheduler == nullptr || (counts == nullptr && rows > 0) || (ids == nullptr && ids_len > 0) ||
      (outcomes == nullptr && outcomes_max > 0)) {
    return null_argument();
  }
  return guarded([&] {
    return scheduler->core.result(now_us, step, step_us, span(counts, rows), span(ids, ids_len),
                                  span(outcomes, outcomes_max));
  });
}

int32_t ts_scheduler_step_failed(ts_scheduler *scheduler, int64_t now_us, uint64_t step, uint64_t *requests,
                                 int32_t requests_max) {
  if (scheduler == nullptr || (requests == nullptr && requests_max > 0)) return null_argument();
  return guarded([&] { return scheduler->core.step_failed(now_us, step, span(requests, requests_max)); });
}

int32_t ts_scheduler_executor_lost(ts_scheduler *scheduler, int64_t now_us) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.executor_lost(now_us); });
}

int32_t ts_scheduler_flush(ts_scheduler *scheduler, int64_t now_us) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.flush(now_us); });
}

int32_t ts_scheduler_cached_tokens(const ts_scheduler *scheduler, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.cached_tokens(request); });
}

int32_t ts_scheduler_stats(const ts_scheduler *scheduler, ts_scheduler_stats_t *stats) {
  if (scheduler == nullptr || stats == nullptr) return null_argument();
  scheduler->core.stats(*stats);
  return TS_OK;
}

int32_t ts_scheduler_check(const ts_scheduler *scheduler) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.check(); });
}

int32_t ts_state_count(void) { return ts::kStates; }
int32_t ts_event_count(void) { return ts::kEvents; }

const char *ts_state_name(int32_t state) {
  return state >= 0 && state < ts::kStates ? ts::kStateNames[static_cast<size_t>(state)] : "";
}

const char *ts_event_name(int32_t event) {
  return event >= 0 && event < ts::kEvents ? ts::kEventNames[static_cast<size_t>(event)] : "";
}

int32_t ts_state_next(int32_t state, int32_t event) {
  if (state < 0 || state >= ts::kStates || event < 0 || event >= ts::kEvents) {
    return ts::fail(TS_ERR_ARGUMENT, "No such state or event");
  }
  const int8_t next = ts::next_state(static_cast<ts::Kind>(state), static_cast<ts::Event>(event));
  if (next >= 0) return next;
  return ts::fail(TS_ERR_ILLEGAL, std::string(ts_event_name(event)) + " is illegal in state " + ts_state_name(state));
}

int32_t ts_scheduler_state(const ts_scheduler *scheduler, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.state(request); });
}

}  // extern "C"
