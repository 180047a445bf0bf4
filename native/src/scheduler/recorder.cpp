#include "scheduler/recorder.h"

#include <algorithm>
#include <cstring>

#include "scheduler/hash.h"

namespace ts {
namespace {

constexpr char kMagic[8] = "TSLOG1\0";

}  // namespace

Digest &Digest::number(int64_t value) {
  value_ = detail::fold(value_ ^ static_cast<uint64_t>(value), 0x8f3d5b71a2c6e94d) + 1;
  return *this;
}

Digest &Digest::ints(std::span<const int32_t> values) {
  number(static_cast<int64_t>(values.size()));
  for (const int32_t value : values) number(value);
  return *this;
}

Digest &Digest::plan(const ts_plan &plan) {
  const auto span = [](const int32_t *data, int32_t count) {
    return std::span(data, static_cast<size_t>(count));
  };
  number(static_cast<int64_t>(plan.step)).number(plan.sample_rows);
  for (int32_t i = 0; i < plan.openings_len; ++i) {
    number(static_cast<int64_t>(plan.openings[i].request)).number(plan.openings[i].slot);
  }
  return ints(span(plan.rows, plan.rows_len * 4))
      .ints(span(plan.ids, plan.ids_len))
      .ints(span(plan.pages, plan.pages_len * 4));
}

Digest &Digest::outcomes(std::span<const ts_outcome> outcomes) {
  for (const ts_outcome &outcome : outcomes) {
    number(static_cast<int64_t>(outcome.request)).number(outcome.first).number(outcome.offset);
    number(outcome.count).number(outcome.finish);
  }
  return *this;
}

LogWriter::LogWriter(const Config &config) {
  bytes(kMagic, sizeof kMagic);
  number(ts_abi_version());
  bytes(&config, sizeof config);
}

LogWriter &LogWriter::event(Call call, int64_t now_us) {
  log_.push_back(static_cast<uint8_t>(call));
  return number(now_us);
}

LogWriter &LogWriter::number(int64_t value) {
  bytes(&value, sizeof value);
  return *this;
}

LogWriter &LogWriter::ints(std::span<const int32_t> values) {
  number(static_cast<int64_t>(values.size()));
  if (!values.empty()) bytes(values.data(), values.size_bytes());
  return *this;
}

int64_t LogWriter::take(std::span<uint8_t> out) {
  const size_t count = std::min(out.size(), log_.size());
  std::copy_n(log_.begin(), count, out.begin());
  log_.erase(log_.begin(), log_.begin() + static_cast<ptrdiff_t>(count));
  return static_cast<int64_t>(count);
}

void LogWriter::bytes(const void *data, size_t size) {
  const auto *begin = static_cast<const uint8_t *>(data);
  log_.insert(log_.end(), begin, begin + size);
}

std::string LogReader::head(Config &config) {
  char magic[sizeof kMagic] = {};
  bytes(magic, sizeof magic);
  if (std::memcmp(magic, kMagic, sizeof magic) != 0) return "This is no log of a scheduler";
  if (const int64_t version = number(); version != ts_abi_version())
    return "The log is of ABI version " + std::to_string(version) + " and this library of " +
           std::to_string(ts_abi_version()) + ": replay it with the TokenSpeed that recorded it";
  return bytes(&config, sizeof config) ? "" : "The log ends inside its configuration";
}

Call LogReader::call() {
  uint8_t call = 0;
  bytes(&call, sizeof call);
  broken_ |= call > static_cast<uint8_t>(Call::kFlush);
  return static_cast<Call>(call);
}

int64_t LogReader::number() {
  int64_t value = 0;
  bytes(&value, sizeof value);
  return value;
}

std::vector<int32_t> LogReader::ints() {
  const auto count = static_cast<uint64_t>(number());
  if (count > log_.size() / sizeof(int32_t)) {
    broken_ = true;
    return {};
  }
  std::vector<int32_t> values(count);
  if (count > 0) bytes(values.data(), count * sizeof(int32_t));
  return values;
}

bool LogReader::bytes(void *data, size_t size) {
  if (size > log_.size()) {
    broken_ = true;
    log_ = {};
    return false;
  }
  std::memcpy(data, log_.data(), size);
  log_ = log_.subspan(size);
  return true;
}

}  // namespace ts
