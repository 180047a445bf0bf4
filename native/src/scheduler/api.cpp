// The C ABI of the scheduler: checks pointers, catches exceptions, calls the core, writes the log.

#include <memory>
#include <new>

#include "error.h"
#include "scheduler/config.h"
#include "scheduler/recorder.h"
#include "scheduler/scheduler.h"

struct ts_scheduler {
  explicit ts_scheduler(const ts::Config &config) : core(config) {}
  ts::Scheduler core;
  std::unique_ptr<ts::LogWriter> log;  // null unless events are recorded
  ts_trace *trace = nullptr;
};

namespace {

using ts::Call;
using ts::Digest;

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

// The end of planning is the one time that no event brings.
void trace_plan(const ts_scheduler &scheduler, int64_t now_us, const ts_plan &plan) {
  ts::trace::put(scheduler.trace, now_us * 1000, TS_POINT_PLAN_BEGIN, 0, plan.step, 0);
  ts::trace::put_now(scheduler.trace, TS_POINT_PLANNED, 0, plan.step,
                     (static_cast<int64_t>(plan.rows_len) << 32) + plan.ids_len);
}

}  // namespace

extern "C" {

int32_t ts_scheduler_create(const ts_scheduler_config *config, ts_scheduler **scheduler) {
  if (config == nullptr || scheduler == nullptr) return null_argument();
  return guarded([&]() -> int32_t {
    const std::string wrong = ts::check_config(*config);
    if (!wrong.empty())
      return ts::fail(TS_ERR_ARGUMENT, "The scheduler's configuration is wrong: " + wrong);
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

int32_t ts_scheduler_submit(ts_scheduler *scheduler, int64_t now_us,
                            const ts_submission *submission) {
  if (scheduler == nullptr || submission == nullptr) return null_argument();
  if ((submission->prompt == nullptr && submission->prompt_len > 0) ||
      (submission->resume == nullptr && submission->resume_len > 0) ||
      (submission->end_ids == nullptr && submission->end_ids_len > 0)) {
    return null_argument();
  }
  return guarded([&] {
    const int32_t status = scheduler->core.submit(now_us, *submission);
    if (scheduler->log) {
      scheduler->log->event(Call::kSubmit, now_us)
          .number(static_cast<int64_t>(submission->request))
          .number(static_cast<int64_t>(submission->session))
          .number(static_cast<int64_t>(submission->space_low))
          .number(static_cast<int64_t>(submission->space_high))
          .number(submission->priority)
          .number(submission->max_tokens)
          .number(submission->score)
          .ints(span(submission->prompt, submission->prompt_len))
          .ints(span(submission->resume, submission->resume_len))
          .ints(span(submission->end_ids, submission->end_ids_len))
          .answer(Digest(status));
    }
    return status;
  });
}

int32_t ts_scheduler_cancel(ts_scheduler *scheduler, int64_t now_us, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.cancel(now_us, request);
    if (scheduler->log) {
      scheduler->log->event(Call::kCancel, now_us)
          .number(static_cast<int64_t>(request))
          .answer(Digest(status));
    }
    return status;
  });
}

int32_t ts_scheduler_dropped(ts_scheduler *scheduler, int64_t now_us, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.dropped(now_us, request);
    if (scheduler->log) {
      scheduler->log->event(Call::kDropped, now_us)
          .number(static_cast<int64_t>(request))
          .answer(Digest(status));
    }
    return status;
  });
}

int32_t ts_scheduler_verdict(ts_scheduler *scheduler, int64_t now_us, uint64_t request,
                             int32_t tokens_kept) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.verdict(now_us, request, tokens_kept);
    if (scheduler->log) {
      scheduler->log->event(Call::kVerdict, now_us)
          .number(static_cast<int64_t>(request))
          .number(tokens_kept)
          .answer(Digest(status));
    }
    return status;
  });
}

int32_t ts_scheduler_plan(ts_scheduler *scheduler, int64_t now_us, ts_plan *plan) {
  if (scheduler == nullptr || plan == nullptr || plan->openings == nullptr ||
      plan->rows == nullptr || plan->ids == nullptr || plan->pages == nullptr) {
    return null_argument();
  }
  return guarded([&] {
    const int32_t status = scheduler->core.plan(now_us, *plan);
    if (status == 1) trace_plan(*scheduler, now_us, *plan);
    if (scheduler->log) {
      Digest digest(status);
      scheduler->log->event(Call::kPlan, now_us).answer(status == 1 ? digest.plan(*plan) : digest);
    }
    return status;
  });
}

int32_t ts_scheduler_result(ts_scheduler *scheduler, int64_t now_us, uint64_t step, int32_t step_us,
                            const int32_t *counts, int32_t rows, const int32_t *ids,
                            int32_t ids_len, ts_outcome *outcomes, int32_t outcomes_max) {
  if (scheduler == nullptr || (counts == nullptr && rows > 0) || (ids == nullptr && ids_len > 0) ||
      (outcomes == nullptr && outcomes_max > 0)) {
    return null_argument();
  }
  return guarded([&] {
    const int32_t status = scheduler->core.result(now_us, step, step_us, span(counts, rows),
                                                  span(ids, ids_len), span(outcomes, outcomes_max));
    // A buffer that is too small is the caller's affair: in a replay it is large enough.
    if (scheduler->log && status != TS_ERR_CAPACITY) {
      scheduler->log->event(Call::kResult, now_us)
          .number(static_cast<int64_t>(step))
          .number(step_us)
          .ints(span(counts, rows))
          .ints(span(ids, ids_len))
          .answer(Digest(status).outcomes(span<const ts_outcome>(outcomes, status)));
    }
    return status;
  });
}

int32_t ts_scheduler_step_failed(ts_scheduler *scheduler, int64_t now_us, uint64_t step,
                                 uint64_t *requests, int32_t requests_max) {
  if (scheduler == nullptr || (requests == nullptr && requests_max > 0)) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.step_failed(now_us, step, span(requests, requests_max));
    if (scheduler->log && status != TS_ERR_CAPACITY) {
      Digest digest(status);
      for (int32_t i = 0; i < status; ++i) digest.number(static_cast<int64_t>(requests[i]));
      scheduler->log->event(Call::kStepFailed, now_us)
          .number(static_cast<int64_t>(step))
          .answer(digest);
    }
    return status;
  });
}

int32_t ts_scheduler_executor_lost(ts_scheduler *scheduler, int64_t now_us) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.executor_lost(now_us);
    if (scheduler->log) scheduler->log->event(Call::kExecutorLost, now_us).answer(Digest(status));
    return status;
  });
}

int32_t ts_scheduler_flush(ts_scheduler *scheduler, int64_t now_us) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] {
    const int32_t status = scheduler->core.flush(now_us);
    if (scheduler->log) scheduler->log->event(Call::kFlush, now_us).answer(Digest(status));
    return status;
  });
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

int32_t ts_scheduler_trace(ts_scheduler *scheduler, ts_trace *trace) {
  if (scheduler == nullptr) return null_argument();
  scheduler->trace = trace;
  scheduler->core.trace(trace);
  return TS_OK;
}

int32_t ts_scheduler_record(ts_scheduler *scheduler) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&]() -> int32_t {
    if (!scheduler->core.is_new())
      return ts::fail(TS_ERR_ILLEGAL, "A log begins with the scheduler, before any event");
    scheduler->log = std::make_unique<ts::LogWriter>(scheduler->core.config());
    return TS_OK;
  });
}

int64_t ts_scheduler_log(ts_scheduler *scheduler, uint8_t *data, int64_t max) {
  if (scheduler == nullptr || (data == nullptr && max > 0)) return null_argument();
  if (!scheduler->log)
    return ts::fail(TS_ERR_ILLEGAL, "Nothing is recorded: ts_scheduler_record was not called");
  return scheduler->log->take({data, max > 0 ? static_cast<size_t>(max) : 0});
}

int32_t ts_scheduler_replay(const uint8_t *log, int64_t len, ts_scheduler **scheduler) {
  if (log == nullptr || scheduler == nullptr || len < 0) return null_argument();
  return guarded([&]() -> int32_t {
    ts::LogReader reader({log, static_cast<size_t>(len)});
    ts::Config config{};
    const std::string strange = reader.head(config);
    if (!strange.empty()) return ts::fail(TS_ERR_CORRUPT, strange);
    const std::string wrong = ts::check_config(config);
    if (!wrong.empty())
      return ts::fail(TS_ERR_CORRUPT, "The log's configuration is wrong: " + wrong);
    auto made = std::make_unique<ts_scheduler>(config);
    const std::string parted = ts::replay(reader, made->core);
    if (!parted.empty()) return ts::fail(TS_ERR_CORRUPT, "The replay stops: " + parted);
    *scheduler = made.release();
    return TS_OK;
  });
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
  return ts::fail(TS_ERR_ILLEGAL, std::string(ts_event_name(event)) + " is illegal in state " +
                                      ts_state_name(state));
}

int32_t ts_scheduler_state(const ts_scheduler *scheduler, uint64_t request) {
  if (scheduler == nullptr) return null_argument();
  return guarded([&] { return scheduler->core.state(request); });
}

}  // extern "C"
