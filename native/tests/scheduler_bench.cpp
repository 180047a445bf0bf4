// How long the scheduler takes for a step: `make -C native/tests bench-scheduler [STEPS=2000]`, or
// with STEPS="2000 64 8192" for 64 rows of 8,192 prompt tokens alone.
//
// Decode steps of many requests with long prompts, pages of 64, overlap 1, as in a busy server.
// Prints one JSON line a series: microseconds at the median, the 90th and 99th percentile and the
// maximum over all steps (a page fills up every 64th token of each request, so all costs are in).

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <vector>

#include "tokenspeed.h"

namespace {

constexpr int32_t kSteps = 2000, kStepsMin = 64;

struct Series {
  std::vector<double> us;
  double at(double share) {
    std::sort(us.begin(), us.end());
    return us[static_cast<size_t>(share * static_cast<double>(us.size() - 1))];
  }
};

class Stopwatch {
 public:
  explicit Stopwatch(Series &series) : series_(series) {}
  ~Stopwatch() {
    const std::chrono::duration<double, std::micro> passed =
        std::chrono::steady_clock::now() - begin_;
    series_.us.push_back(passed.count());
  }
  Stopwatch(const Stopwatch &) = delete;
  Stopwatch &operator=(const Stopwatch &) = delete;

 private:
  Series &series_;
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

class Bench {
 public:
  Bench(int32_t rows, int32_t prompt_tokens, int32_t waiting, int32_t steps)
      : rows_(rows),
        prompt_tokens_(prompt_tokens),
        waiting_(waiting),
        steps_(steps),
        output_tokens_(steps + ramp() + 8) {
    const int32_t length = prompt_tokens + output_tokens_;
    ts_scheduler_config config{};
    config.page_tokens = 64;
    config.groups = 1;
    config.pages_total[0] = rows * (length / 64 + 1) + 1;
    config.slots = rows + 1;
    config.step_tokens = config.step_tokens_mixed = 8192;
    config.max_model_len = length;
    config.overlap = 1;
    config.width = 1;
    config.prefix_caching = 1;
    config.growth_tokens = waiting > 0 ? output_tokens_ : 128;
    if (ts_scheduler_create(&config, &core_) != TS_OK)
      std::fprintf(stderr, "%s\n", ts_last_error());
    ts_scheduler_plan_limits(core_, &plan_);
    openings_.resize(static_cast<size_t>(plan_.openings_max));
    row_ints_.resize(static_cast<size_t>(plan_.rows_max) * 4);
    ids_.resize(static_cast<size_t>(plan_.ids_max));
    pages_.resize(static_cast<size_t>(plan_.pages_max) * 4);
    outcomes_.resize(static_cast<size_t>(rows));
    plan_.openings = openings_.data();
    plan_.rows = row_ints_.data();
    plan_.ids = ids_.data();
    plan_.pages = pages_.data();
  }
  ~Bench() { ts_scheduler_destroy(core_); }
  Bench(const Bench &) = delete;
  Bench &operator=(const Bench &) = delete;

  void run() {
    for (int32_t i = 0; i < rows_; ++i) submit(i);
    Series ignored;
    while (plan_.rows_len < rows_ || plan_.ids_len > 0) step(ignored, ignored);
    for (int32_t i = 0; i < waiting_; ++i) submit(rows_ + i);
    Series plans, results;
    for (int32_t i = 0; i < steps_; ++i) step(plans, results);
    std::printf(
        "{\"bench\":\"scheduler\",\"rows\":%d,\"prompt_tokens\":%d,\"waiting\":%d,\"steps\":%zu,"
        "\"submit_us_p50\":"
        "%.1f,"
        "\"plan_us_p50\":%.3f,\"plan_us_p90\":%.3f,\"plan_us_p99\":%.3f,\"plan_us_max\":%.1f,"
        "\"result_us_p50\":%.3f,\"result_us_p90\":%.3f,\"result_us_p99\":%.3f,\"result_us_max\":%."
        "1f}\n",
        rows_, prompt_tokens_, waiting_, plans.us.size(), submits_.at(0.5), plans.at(0.5),
        plans.at(0.9), plans.at(0.99), plans.at(1), results.at(0.5), results.at(0.9),
        results.at(0.99), results.at(1));
    std::fflush(stdout);
  }

 private:
  void submit(int32_t number) {
    std::vector<int32_t> prompt(static_cast<size_t>(prompt_tokens_));
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = number * 7919 + static_cast<int32_t>(i);
    ts_submission submission{};
    submission.request = static_cast<uint64_t>(number) + 1;
    submission.session = submission.request;
    submission.max_tokens = output_tokens_;
    submission.prompt = prompt.data();
    submission.prompt_len = prompt_tokens_;
    const Stopwatch watch(submits_);
    ts_scheduler_submit(core_, ++now_us_, &submission);
  }

  void step(Series &plans, Series &results) {
    int32_t planned = 0;
    {
      const Stopwatch watch(plans);
      planned = ts_scheduler_plan(core_, ++now_us_, &plan_);
    }
    if (planned == 1) {
      flights_.push_back({plan_.step, plan_.sample_rows});
      if (flights_.size() < 2) return;
    }
    const auto [number, sampled] = flights_.front();
    flights_.pop_front();
    const std::vector<int32_t> counts(static_cast<size_t>(sampled), 1),
        ids(static_cast<size_t>(sampled), 17);
    const Stopwatch watch(results);
    ts_scheduler_result(core_, ++now_us_, number, 1000, counts.data(), sampled, ids.data(), sampled,
                        outcomes_.data(), static_cast<int32_t>(outcomes_.size()));
  }

  // Steps until the last request decodes, while the first ones already do.
  int32_t ramp() const { return 2 * (rows_ * (prompt_tokens_ / 8192 + 1) + 8); }

  const int32_t rows_, prompt_tokens_, waiting_, steps_, output_tokens_;
  ts_scheduler *core_ = nullptr;
  ts_plan plan_{};
  std::vector<ts_opening> openings_;
  std::vector<int32_t> row_ints_, ids_, pages_;
  std::vector<ts_outcome> outcomes_;
  std::deque<std::pair<uint64_t, int32_t>> flights_;
  Series submits_;
  int64_t now_us_ = 0;
};

}  // namespace

int main(int argc, char **argv) {
  const int32_t steps = argc > 1 ? std::atoi(argv[1]) : kSteps;
  if (steps < kStepsMin) {
    std::fprintf(stderr, "%s steps: at least %d are needed\n", argv[1], kStepsMin);
    return 2;
  }
  if (argc > 3) {
    Bench(std::atoi(argv[2]), std::atoi(argv[3]), 0, steps).run();
    return 0;
  }
  for (const int32_t prompt_tokens : {2048, 8192}) {
    for (const int32_t rows : {1, 64, 256, 1024}) Bench(rows, prompt_tokens, 0, steps).run();
  }
  Bench(64, 2048, 1000, steps).run();
}
