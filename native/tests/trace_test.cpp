// Trace buffers: points are whole whatever threads do, a dead writer holds nobody up, and a point
// costs little.

#include "trace.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "check.h"

namespace {

constexpr uint64_t kCapacity = 1024;

// A buffer with one writing and one reading end.
struct Buffer {
  explicit Buffer(uint64_t capacity = kCapacity) : fd(memfd_create("trace", 0)) {
    CHECK_EQ(ftruncate(fd, ts_trace_bytes(capacity)), 0);
    CHECK_EQ(ts_trace_format(fd, capacity), TS_OK);
    CHECK_EQ(ts_trace_open(fd, &trace), TS_OK);
    CHECK_EQ(ts_trace_reader_open(fd, &reader), TS_OK);
  }
  Buffer(const Buffer &) = delete;
  Buffer &operator=(const Buffer &) = delete;
  ~Buffer() {
    ts_trace_close(trace);
    ts_trace_reader_close(reader);
    close(fd);
  }
  int64_t read(std::vector<ts_trace_point> &out) const {
    std::array<ts_trace_point, 64> part;
    int64_t found = 0;
    while (const int64_t more = ts_trace_read(reader, part.data(), part.size())) {
      out.insert(out.end(), part.begin(), part.begin() + more);
      found += more;
    }
    return found;
  }

  int fd;
  ts_trace *trace = nullptr;
  ts_trace_reader *reader = nullptr;
};

// A point whose words all follow from one number.
void put(ts_trace *trace, uint64_t number) {
  ts_trace_put_at(trace, static_cast<int64_t>(number * 3), 1 + static_cast<uint32_t>(number % 7),
                  number, number, -static_cast<int64_t>(number));
}

void check_whole(const ts_trace_point &point) {
  CHECK_EQ(point.time_ns, static_cast<int64_t>(point.request * 3));
  CHECK_EQ(point.value, -static_cast<int64_t>(point.request));
  CHECK_EQ(point.step, static_cast<uint32_t>(point.request));
  CHECK_EQ(point.kind, 1 + point.request % 7);
}

}  // namespace

TEST(a_reader_that_races_with_two_writers_sees_whole_points_only) {
  Buffer buffer(64);  // so small that the writers lap the reader all the time
  constexpr uint64_t kEach = 100'000;
  std::vector<std::thread> writers;
  for (uint64_t first : {uint64_t{0}, uint64_t{1}})
    writers.emplace_back([&, first] {
      for (uint64_t i = 0; i < kEach; ++i) put(buffer.trace, first + 2 * i);
    });
  std::vector<ts_trace_point> seen;
  while (seen.size() + static_cast<size_t>(ts_trace_lost(buffer.reader)) < kEach) buffer.read(seen);
  for (std::thread &writer : writers) writer.join();
  buffer.read(seen);
  std::for_each(seen.begin(), seen.end(), check_whole);
  CHECK_EQ(seen.size() + static_cast<size_t>(ts_trace_lost(buffer.reader)), 2 * kEach);
}

TEST(laps_are_told_apart) {
  Buffer buffer(64);
  std::vector<ts_trace_point> seen;
  for (uint64_t i = 0; i < 64 * 70'000; ++i)
    put(buffer.trace, i);  // the lap number itself goes round
  CHECK_EQ(buffer.read(seen), 64);
  CHECK_EQ(seen.front().request, 64U * 69'999);
  CHECK_EQ(ts_trace_lost(buffer.reader), 64 * 69'999);
}

TEST(a_writer_that_died_half_way_holds_nobody_up) {
  Buffer buffer;
  std::vector<ts_trace_point> seen;
  put(buffer.trace, 1);
  buffer.trace->end.take(1);  // and never filled
  put(buffer.trace, 2);
  CHECK_EQ(buffer.read(seen), 1);
  for (uint64_t i = 3; i < 300; ++i) put(buffer.trace, i);
  CHECK_EQ(buffer.read(seen), 298);
  CHECK_EQ(ts_trace_lost(buffer.reader), 1);
  std::for_each(seen.begin(), seen.end(), check_whole);
}

TEST(a_point_costs_little) {
  Buffer buffer(1 << 16);
  constexpr int kPoints = 200'000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kPoints; ++i) ts_trace_put(buffer.trace, TS_POINT_RESULT, 1, 2, 3);
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  std::cout << "  " << took.count() / kPoints << " ns a point, under a sanitizer" << std::endl;
  CHECK(took.count() / kPoints < 5000);
}

CHECK_MAIN()
