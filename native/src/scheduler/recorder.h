// The log of a scheduler's life: its configuration, then every event and a digest of the answer.
//
// A log is a replay file: the same events give the same plans, so a log that is fed to another
// scheduler (`replay`) shows at once whether, and at which event, the two part.
//
//   head   "TSLOG1\0\0", ABI version (8 bytes), configuration (ts_scheduler_config)
//   event  call (1 byte), now_us (8), its numbers (8 each) and arrays (8: length, then int32s),
//          digest of the answer (8)
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "scheduler/types.h"

namespace ts {

enum class Call : uint8_t {
  kSubmit,
  kCancel,
  kDropped,
  kVerdict,
  kPlan,
  kResult,
  kStepFailed,
  kExecutorLost,
  kFlush,
};

// A digest of what a call gave back.
class Digest {
 public:
  explicit Digest(int64_t status) { number(status); }
  Digest &number(int64_t value);
  Digest &ints(std::span<const int32_t> values);
  Digest &plan(const ts_plan &plan);
  Digest &outcomes(std::span<const ts_outcome> outcomes);
  uint64_t value() const { return value_; }

 private:
  uint64_t value_ = 0x7d1c3a95e6b0f284;
};

class LogWriter {
 public:
  explicit LogWriter(const Config &config);

  LogWriter &event(Call call, int64_t now_us);
  LogWriter &number(int64_t value);
  LogWriter &ints(std::span<const int32_t> values);
  void answer(const Digest &digest) { number(static_cast<int64_t>(digest.value())); }

  // Moves at most `out.size()` bytes to `out`; returns how many.
  int64_t take(std::span<uint8_t> out);

 private:
  void bytes(const void *data, size_t size);
  std::vector<uint8_t> log_;
};

// Reads what LogWriter wrote. Past the end, everything reads as 0 and `broken` says so.
class LogReader {
 public:
  explicit LogReader(std::span<const uint8_t> log) : log_(log) {}

  // Reads the configuration; an empty text, or why this log cannot be read.
  std::string head(Config &config);
  bool at_end() const { return log_.empty(); }
  bool broken() const { return broken_; }
  Call call();
  int64_t number();
  std::vector<int32_t> ints();

 private:
  bool bytes(void *data, size_t size);
  std::span<const uint8_t> log_;
  bool broken_ = false;
};

class Scheduler;

// Feeds the events of `log` to `core`, which is new and made of the log's configuration. Returns an
// empty text, or where they part.
std::string replay(LogReader &log, Scheduler &core);

}  // namespace ts
