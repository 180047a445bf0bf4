// A trace buffer: the latest points of an actor, written in passing and read from outside.
//
//   | magic, capacity | head | point 0 | point 1 | ... | point capacity-1 |
//
// A writer takes the next index by adding to `head`, so threads never wait for each other. A point
// is four words; the last is its tag (step, kind, lap), zero while the other three change, so a
// reader sees a whole point of the lap that it expects or knows that there is none. A point whose
// writer died half-way is skipped once others have gone past it.
//
// Invariant: writing neither blocks nor fails nor makes a system call (the clock is read in user
// space).
#pragma once

#include <time.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tokenspeed.h"

namespace ts::trace {

using Word = std::atomic<uint64_t>;

struct Slot {
  Word time_ns;
  Word request;
  Word value;
  Word tag;
};

struct Header {
  Word magic;
  Word capacity;
  alignas(64) Word head;  // points ever begun
  alignas(64) Slot slots[1];
};

static_assert(Word::is_always_lock_free && sizeof(Slot) == 32);
static_assert(offsetof(Header, slots) == 128);

constexpr uint64_t kMagic = 0x3165636172547354;  // "TsTrace1"
constexpr uint64_t kLaps = 65535;

// Laps are counted from 1, so that the tag of a slot never written fits none.
inline uint64_t tag_of(uint64_t index, uint64_t capacity, uint64_t step, uint64_t kind) {
  return (step << 32) | ((kind & 0xffff) << 16) | (1 + (index / capacity) % kLaps);
}

inline uint64_t lap_of(uint64_t tag) { return tag & 0xffff; }

inline int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

class Writer {
 public:
  explicit Writer(Header *header) : header_(header), capacity_(header->capacity.load()) {}

  void put(int64_t time_ns, uint32_t kind, uint64_t request, uint64_t step, int64_t value) {
    fill(take(1), time_ns, kind, request, step, value);
  }

  uint64_t take(uint64_t count) {
    return header_->head.fetch_add(count, std::memory_order_acq_rel);
  }

  // Every store releases: none is seen before the tag was cleared, and the new tag only with all.
  // SYNC POINT: the tag, with Reader::get.
  void fill(uint64_t index, int64_t time_ns, uint32_t kind, uint64_t request, uint64_t step,
            int64_t value) {
    Slot &slot = header_->slots[index & (capacity_ - 1)];
    slot.tag.store(0, std::memory_order_release);
    slot.time_ns.store(static_cast<uint64_t>(time_ns), std::memory_order_release);
    slot.request.store(request, std::memory_order_release);
    slot.value.store(static_cast<uint64_t>(value), std::memory_order_release);
    slot.tag.store(tag_of(index, capacity_, step, kind), std::memory_order_release);
  }

 private:
  Header *header_;
  uint64_t capacity_;
};

class Reader {
 public:
  explicit Reader(const Header *header) : header_(header), capacity_(header->capacity.load()) {}

  int64_t read(ts_trace_point *out, int64_t max);
  int64_t lost() const { return lost_; }
  void skip() { next_ = head(); }

 private:
  // How far writers must be ahead of an unfinished point before it is given up.
  static constexpr uint64_t kPatience = 256;

  uint64_t head() const { return header_->head.load(std::memory_order_acquire); }
  bool get(uint64_t index, ts_trace_point &out) const;
  void drop_overwritten();

  const Header *header_;
  uint64_t capacity_;
  uint64_t next_ = 0;
  int64_t lost_ = 0;
};

}  // namespace ts::trace

// What may be null: a part of the engine that nobody traces.
struct ts_trace {
  ts::trace::Writer end;
  void *mapping;
  size_t bytes;
};

namespace ts::trace {

inline void put(ts_trace *trace, int64_t time_ns, uint32_t kind, uint64_t request, uint64_t step,
                int64_t value) {
  if (trace != nullptr) trace->end.put(time_ns, kind, request, step, value);
}

inline void put_now(ts_trace *trace, uint32_t kind, uint64_t request, uint64_t step,
                    int64_t value) {
  if (trace != nullptr) trace->end.put(now_ns(), kind, request, step, value);
}

}  // namespace ts::trace
