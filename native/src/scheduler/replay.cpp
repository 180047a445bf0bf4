// Feeds a log to a scheduler and compares answers.

#include "scheduler/recorder.h"
#include "scheduler/scheduler.h"

namespace ts {
namespace {

// Buffers as large as any plan, which a caller would own.
struct PlanBuffers {
  explicit PlanBuffers(const Config &config) {
    Planner::limits(config, plan);
    openings.resize(static_cast<size_t>(plan.openings_max));
    rows.resize(static_cast<size_t>(plan.rows_max) * 4);
    ids.resize(static_cast<size_t>(plan.ids_max));
    pages.resize(static_cast<size_t>(plan.pages_max) * 4);
    plan.openings = openings.data();
    plan.rows = rows.data();
    plan.ids = ids.data();
    plan.pages = pages.data();
  }
  std::vector<ts_opening> openings;
  std::vector<int32_t> rows, ids, pages;
  ts_plan plan{};
};

Digest submit(LogReader &log, Scheduler &core, int64_t now_us) {
  ts_submission submission{};
  submission.request = static_cast<uint64_t>(log.number());
  submission.session = static_cast<uint64_t>(log.number());
  submission.space_low = static_cast<uint64_t>(log.number());
  submission.space_high = static_cast<uint64_t>(log.number());
  submission.priority = static_cast<int32_t>(log.number());
  submission.max_tokens = static_cast<int32_t>(log.number());
  submission.score = static_cast<int32_t>(log.number());
  const std::vector<int32_t> prompt = log.ints(), resume = log.ints(), end_ids = log.ints();
  submission.prompt = prompt.data();
  submission.prompt_len = length(prompt);
  submission.resume = resume.data();
  submission.resume_len = length(resume);
  submission.end_ids = end_ids.data();
  submission.end_ids_len = length(end_ids);
  return Digest(core.submit(now_us, submission));
}

Digest result(LogReader &log, Scheduler &core, int64_t now_us) {
  const auto step = static_cast<StepId>(log.number());
  const auto step_us = static_cast<int32_t>(log.number());
  const std::vector<int32_t> counts = log.ints(), ids = log.ints();
  std::vector<ts_outcome> outcomes(static_cast<size_t>(core.config().slots));
  const int32_t live = core.result(now_us, step, step_us, counts, ids, outcomes);
  return Digest(live).outcomes(std::span(outcomes).first(live > 0 ? static_cast<size_t>(live) : 0));
}

Digest step_failed(LogReader &log, Scheduler &core, int64_t now_us) {
  std::vector<uint64_t> requests(static_cast<size_t>(core.config().slots));
  const int32_t ended = core.step_failed(now_us, static_cast<StepId>(log.number()), requests);
  Digest digest(ended);
  for (int32_t i = 0; i < ended; ++i) digest.number(static_cast<int64_t>(at(requests, i)));
  return digest;
}

Digest plan(Scheduler &core, int64_t now_us, PlanBuffers &buffers) {
  const int32_t status = core.plan(now_us, buffers.plan);
  Digest digest(status);
  return status == 1 ? digest.plan(buffers.plan) : digest;
}

Digest answer(LogReader &log, Scheduler &core, Call call, int64_t now_us, PlanBuffers &buffers) {
  switch (call) {
    case Call::kSubmit:
      return submit(log, core, now_us);
    case Call::kCancel:
      return Digest(core.cancel(now_us, static_cast<RequestId>(log.number())));
    case Call::kDropped:
      return Digest(core.dropped(now_us, static_cast<RequestId>(log.number())));
    case Call::kVerdict: {
      const auto request = static_cast<RequestId>(log.number());
      return Digest(core.verdict(now_us, request, static_cast<int32_t>(log.number())));
    }
    case Call::kPlan:
      return plan(core, now_us, buffers);
    case Call::kResult:
      return result(log, core, now_us);
    case Call::kStepFailed:
      return step_failed(log, core, now_us);
    case Call::kExecutorLost:
      return Digest(core.executor_lost(now_us));
    case Call::kFlush:
      return Digest(core.flush(now_us));
  }
  return Digest(0);
}

}  // namespace

std::string replay(LogReader &log, Scheduler &core) {
  PlanBuffers buffers(core.config());
  for (int64_t event = 1; !log.at_end(); ++event) {
    const std::string where = "event " + std::to_string(event);
    const Call call = log.call();
    const int64_t now_us = log.number();
    if (log.broken()) return where + " cannot be read";
    const Digest digest = answer(log, core, call, now_us, buffers);
    const auto recorded = static_cast<uint64_t>(log.number());
    if (log.broken()) return where + " is cut short";
    if (digest.value() != recorded) return where + " has another answer than the recorded one";
  }
  return {};
}

}  // namespace ts
