// Random events against the scheduler, the audit after each, a naive device as the judge.
//
//   scheduler_fuzz [--events N] [--seed S] [--plant BUG]
//
// Runs games of a few hundred events, each with a configuration of its own and drained at its end,
// until N events are done. Prints the seed of a game that fails; `--seed S --events 1` plays it
// again.

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "scheduler/plant.h"
#include "scheduler_device.h"

namespace {

using device::Device;
using device::Entry;
using device::Random;

ts_scheduler_config make_config(Random &random) {
  ts_scheduler_config config{};
  config.page_tokens = random.between(1, 5);
  config.groups = random.chance(40) ? 2 : 1;
  config.slots = random.between(1, 8);
  config.step_tokens = random.between(1, 24);
  config.step_tokens_mixed = random.between(1, config.step_tokens);
  config.max_model_len = random.between(16, 64);
  config.overlap = random.below(2);
  config.width = random.chance(30) ? 4 : 1;
  config.prefix_caching = random.chance(85);
  config.growth_tokens = random.chance(70) ? random.below(8) : 128;
  const bool tight = random.chance(40);  // room for one long request and little more
  if (tight) config.growth_tokens = 0;
  for (int32_t g = 0; g < config.groups; ++g) {
    const bool windowed = g == 1 || (config.groups == 1 && random.chance(15));
    config.windows[g] = windowed ? random.between(1, 20) : 0;
    config.pages_total[g] = 2 + (tight               ? config.max_model_len + random.below(30)
                                 : random.chance(30) ? random.between(100, 400)
                                                     : random.between(10, 100)) /
                                    config.page_tokens;
  }
  return config;
}

// Prompts are prefixes of a few trunks with a random tail: so that requests share pages.
std::vector<int32_t> make_prompt(Random &random, int32_t max_model_len) {
  Random trunk(static_cast<uint64_t>(random.between(1, 3)));
  const int32_t length = random.between(1, max_model_len * (random.chance(50) ? 1 : 3) / 4);
  const int32_t shared = random.chance(80) ? random.between(0, length) : 0;
  std::vector<int32_t> prompt;
  for (int32_t i = 0; i < length; ++i)
    prompt.push_back(i < shared ? trunk.below(4) : random.below(3));
  return prompt;
}

class Game {
 public:
  explicit Game(uint64_t seed)
      : seed_(seed), random_(seed), config_(make_config(random_)), device_(config_, vocabulary()) {}

  void play(int32_t events) {
    for (int32_t i = 0; i < events; ++i) {
      device_.now_us += random_.below(5'000);
      event();
      device_.audit();
    }
    device_.drain();
    if (seed_ % 4 == 0) device_.replay();
  }

  static int32_t vocabulary() { return 6; }

  ts_scheduler_stats_t stats() {
    ts_scheduler_stats_t stats;
    ts_scheduler_stats(device_.core(), &stats);
    return stats;
  }

 private:
  void event() {
    const int32_t dice = random_.below(1000);
    if (dice < 150) return submit();
    if (dice < 600) return plan();
    if (dice < 900) return result();
    if (dice < 940) return device_.cancel(some_request());
    if (dice < 965) return verdict();
    if (dice < 975) return device_.dropped(some_request());
    if (dice < 979) return device_.flush();
    if (dice < 981) return device_.executor_lost();
    return submit();
  }

  void submit() {
    Entry entry;
    entry.tokens = make_prompt(random_, config_.max_model_len);
    entry.prompt = static_cast<int32_t>(entry.tokens.size());
    const int32_t room = config_.max_model_len - entry.prompt;
    entry.max_tokens = random_.between(random_.chance(30) ? room : random_.below(2), room);
    entry.score = random_.chance(15);
    entry.space = random_.chance(20) ? 7 : 0;
    entry.priority = random_.chance(10) ? random_.between(-1, 1) : 0;
    if (random_.chance(50)) entry.end_ids.push_back(5);
    std::vector<int32_t> resume;
    if (entry.max_tokens > 0 && random_.chance(15)) {
      for (int32_t i = random_.below(entry.max_tokens); i > 0; --i)
        resume.push_back(random_.below(3));
    }
    const uint64_t id = random_.chance(90) ? next_++ : some_request();
    device_.submit(id, std::move(entry), std::move(resume),
                   static_cast<uint64_t>(random_.below(4)));
  }

  void plan() { device_.plan(random_.chance(2), random_.chance(3)); }

  void result() {
    if (!device_.flights().empty()) device_.result();
  }

  void verdict() {
    const uint64_t id = some_request();
    const auto found = device_.book().find(id);
    const int32_t outputs = found == device_.book().end() ? 0 : found->second.outputs();
    device_.verdict(id, random_.between(0, outputs + (random_.chance(10) ? 1 : 0)));
  }

  // Mostly one of the newest, sometimes one that was never submitted.
  uint64_t some_request() {
    const int32_t back = random_.between(-2, 12);
    return static_cast<uint64_t>(std::max<int64_t>(1, static_cast<int64_t>(next_) - back));
  }

  uint64_t seed_;
  Random random_;
  ts_scheduler_config config_;
  Device device_;
  uint64_t next_ = 1;
};

// What all games together have come by: a fuzzer that meets no retraction proves little.
struct Totals {
  int64_t steps = 0, prefilled = 0, decoded = 0, cached = 0, retractions = 0;
  void add(const ts_scheduler_stats_t &stats) {
    steps += stats.steps;
    prefilled += stats.tokens_prefilled;
    decoded += stats.tokens_decoded;
    cached += stats.tokens_cached;
    retractions += stats.retractions;
  }
};

constexpr const char *kBugNames[] = {"none",
                                     "page-freed-twice",
                                     "page-leaked-on-abort",
                                     "ticket-dropped-early",
                                     "published-before-result",
                                     "hash-without-tokens",
                                     "leased-page-written",
                                     "slot-leaked",
                                     "lease-leaked",
                                     "leased-page-evictable",
                                     "row-past-limit",
                                     "row-after-end-delivered",
                                     "token-lost-in-retract",
                                     "window-slid-early",
                                     "namespace-ignored",
                                     "flush-keeps-leased",
                                     "index-survives-executor",
                                     "depth-ignored",
                                     "oldest-retracted",
                                     "rejected-tokens-published",
                                     "page-not-listed",
                                     "claim-kept-by-dead",
                                     "withdrawn-grows",
                                     "scored-from-cache"};
static_assert(std::size(kBugNames) == static_cast<size_t>(ts::Bug::kEnd));

bool plant(const std::string &name) {
  for (size_t i = 0; i < std::size(kBugNames); ++i) {
    if (name != kBugNames[i]) continue;
    ts::planted_bug = static_cast<ts::Bug>(i);
    return true;
  }
  for (const char *known : kBugNames) std::cout << known << "\n";
  return false;
}

}  // namespace

int main(int argc, char **argv) {
  int64_t events = 200'000;
  uint64_t seed =
      static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count()) %
      1'000'000'000;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--events") == 0) events = std::atoll(argv[i + 1]);
    if (std::strcmp(argv[i], "--seed") == 0) seed = std::strtoull(argv[i + 1], nullptr, 10);
    if (std::strcmp(argv[i], "--plant") == 0 && !plant(argv[i + 1])) return 2;
  }
  std::cout << "first seed " << seed << std::endl;
  int64_t done = 0;
  Totals totals;
  for (; done < events; ++seed) {
    ts::weak_hash = seed % 2 == 0;
    const int32_t length = 300;
    try {
      Game game(seed);
      game.play(length);
      totals.add(game.stats());
    } catch (const std::exception &error) {
      std::cout << "seed " << seed << ": " << error.what() << std::endl;
      return 1;
    }
    done += length;
  }
  std::cout << done << " events, audited after each; last seed " << seed - 1 << "\n"
            << totals.steps << " steps, " << totals.prefilled << " tokens prefilled, "
            << totals.decoded << " decoded, " << totals.cached << " cached, " << totals.retractions
            << " retractions" << std::endl;
  return 0;
}
