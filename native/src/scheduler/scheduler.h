// The scheduler: events in, plan out.
//
// The only file that events reach. It checks them, moves the board, and lets the planner plan.
// It has no clock and makes no system call. Every error leaves everything as it was.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "scheduler/board.h"
#include "scheduler/planner.h"
#include "scheduler/tombstones.h"

namespace ts {

struct Outcome {
  enum Finish : int32_t { kGoesOn = 0, kStop = 1, kLength = 2, kFailed = 3 };
};

class Scheduler {
 public:
  // `config` has passed check_config.
  explicit Scheduler(const Config &config) : board_(config), planner_(board_) {}

  const Config &config() const { return board_.config(); }

  // In the order in which a request meets them; the return values are those of the C ABI.
  int32_t submit(int64_t now_us, const ts_submission &submission);
  int32_t cancel(int64_t now_us, RequestId request);
  int32_t dropped(int64_t now_us, RequestId request);
  int32_t plan(int64_t now_us, ts_plan &plan);
  int32_t result(int64_t now_us, StepId step, int32_t step_us, std::span<const int32_t> counts,
                 std::span<const int32_t> ids, std::span<ts_outcome> outcomes);
  int32_t verdict(int64_t now_us, RequestId request, int32_t tokens_kept);
  int32_t step_failed(int64_t now_us, StepId step, std::span<uint64_t> requests);
  int32_t executor_lost(int64_t now_us);
  int32_t flush(int64_t now_us);

  void trace(ts_trace *trace) { board_.tracer.write_to(trace); }

  // No event has come yet.
  bool is_new() const { return now_us_ == INT64_MIN; }

  int32_t cached_tokens(RequestId request) const;
  int32_t state(RequestId request) const;
  void stats(ts_scheduler_stats_t &stats) const;
  int32_t check() const;

 private:
  int32_t check_submission(const ts_submission &submission) const;
  int32_t check_oldest(StepId step) const;
  int32_t check_result(const Step &step, std::span<const int32_t> counts,
                       std::span<const int32_t> ids) const;
  int32_t end(Request &request, Event event);
  void fail_row(Request &request, ts_outcome &outcome);
  int32_t accept(Request &request, std::span<const int32_t> ids, ts_outcome &outcome);
  void written(Request &request, const StepRow &row);
  bool close_row(StepId step, const StepRow &row, bool failed, std::span<const int32_t> ids,
                 ts_outcome &outcome);
  void advance(int64_t now_us) {
    now_us_ = std::max(now_us_, now_us);
    board_.tracer.advance(now_us_);
  }

  Board board_;
  Planner planner_;
  Tombstones tombstones_;
  int64_t now_us_ = INT64_MIN;  // never goes back, whatever the caller's clock does
  uint64_t next_arrival_ = 0;
};

}  // namespace ts
