// What a ring looks like in shared memory. Both ends trust none of it: see ring_segment.cpp.
//
//   0            kDataOffset                      kDataOffset + capacity
//   | Header ... | record | record | ... | padding |
//
// Positions (tail, heads) count bytes since the ring was made and never wrap; the place of a
// position is its value modulo the capacity. A record begins at a multiple of kRecordAlign and
// never runs over the end of a lap: a padding record fills the rest of it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tokenspeed.h"

namespace ts::ring {

inline constexpr uint64_t kMagic = 0x31474e4952535400;  // "\0TSRING1"
inline constexpr uint32_t kVersion = 1;
inline constexpr size_t kLine = 128;  // two cache lines: the prefetcher fetches them in pairs
inline constexpr uint64_t kDataOffset = 4096;
inline constexpr uint64_t kRecordAlign = 16;

// What one reader writes.
struct ReaderState {
  alignas(kLine) std::atomic<uint64_t> head;      // everything below is free again
  alignas(kLine) std::atomic<uint32_t> sleeping;  // the writer clears it when it wakes the reader
};

struct Header {
  std::atomic<uint64_t> magic;  // written last
  uint32_t version;
  uint32_t readers;
  uint64_t capacity;
  uint64_t epoch;
  alignas(kLine) std::atomic<uint64_t> tail;          // everything below is committed
  alignas(kLine) std::atomic<uint64_t> space_wanted;  // a reader's head that reaches it signals
  ReaderState reader[TS_RING_READERS_MAX];
};

enum class Kind : uint32_t { kWhole = 1, kPadding, kFirstFragment, kNextFragment };

struct Record {
  std::atomic<int32_t> length;  // payload bytes; negative while the payload is being written
  std::atomic<Kind> kind;
  std::atomic<uint64_t> message_bytes;  // of the whole message that this is a part of
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);
static_assert(std::atomic<Kind>::is_always_lock_free);
static_assert(sizeof(Header) <= kDataOffset);
static_assert(sizeof(Record) == kRecordAlign);

// Bytes that a record with `payload` bytes takes.
constexpr uint64_t record_bytes(uint64_t payload) {
  return (sizeof(Record) + payload + kRecordAlign - 1) & ~(kRecordAlign - 1);
}

// The largest payload of one record. A record of at most half the capacity fits an empty ring
// wherever its lap ends; fragments are smaller so that both ends work at once.
constexpr uint64_t whole_bytes_max(uint64_t capacity) { return capacity / 2 - sizeof(Record); }
constexpr uint64_t fragment_bytes_max(uint64_t capacity) { return capacity / 4 - sizeof(Record); }

}  // namespace ts::ring
