// The writing end of a ring. The writer alone moves tail; it believes heads only within bounds.

#include <algorithm>
#include <cstring>
#include <string>

#include "error.h"
#include "ring.h"

namespace ts::ring {

Writer::Writer(Segment segment, const Shape &shape, uint64_t tail, std::vector<Descriptor> data_fds,
               Descriptor space_fd)
    : segment_(std::move(segment)),
      capacity_(shape.capacity),
      readers_(shape.readers),
      data_fds_(std::move(data_fds)),
      space_fd_(std::move(space_fd)),
      tail_(tail),
      head_(tail) {}

int32_t Writer::send(std::span<const std::byte> message) {
  if (message.size() > TS_RING_MESSAGE_MAX)
    return fail(TS_ERR_ARGUMENT, "a message of " + std::to_string(message.size()) +
                                     " bytes, allowed are " + std::to_string(TS_RING_MESSAGE_MAX));
  if (waiting_) clear_space();
  if (partial_sent_ > 0 && !std::ranges::equal(partial_, message)) {
    partial_.clear();  // given up: the next record tells the readers
    partial_sent_ = 0;
  }
  if (message.size() > whole_bytes_max(capacity_)) return send_fragments(message);
  return put(Kind::kWhole, message, message.size());
}

int32_t Writer::send_fragments(std::span<const std::byte> message) {
  size_t sent = partial_sent_;
  while (sent < message.size()) {
    const size_t step = std::min<size_t>(message.size() - sent, fragment_bytes_max(capacity_));
    const Kind kind = sent == 0 ? Kind::kFirstFragment : Kind::kNextFragment;
    const int32_t status = put(kind, message.subspan(sent, step), message.size());
    if (status < 0) return status;
    if (status == 0) {
      // A copy, because only equal bytes may follow those that are in the ring already.
      if (partial_sent_ == 0 && sent > 0) partial_.assign(message.begin(), message.end());
      partial_sent_ = sent;
      return 0;
    }
    sent += step;
  }
  partial_ = {};
  partial_sent_ = 0;
  return 1;
}

int32_t Writer::put(Kind kind, std::span<const std::byte> payload, uint64_t message_bytes) {
  const uint64_t bytes = record_bytes(payload.size());
  const uint64_t lap_left = capacity_ - offset_of(tail_);
  const uint64_t padding = bytes > lap_left ? lap_left : 0;
  const int32_t status = make_room(padding + bytes);
  if (status <= 0) return status;
  if (padding > 0) fill_lap(padding);
  write_record(kind, payload, message_bytes);
  publish();
  return 1;
}

// 1 when `bytes` fit after tail; else 0 with space_wanted set.
int32_t Writer::make_room(uint64_t bytes) {
  const auto fits = [&] { return tail_ + bytes - head_ <= capacity_; };
  if (!waiting_ && fits()) return 1;
  if (const int32_t status = refresh_head(); status < 0) return status;
  std::atomic<uint64_t> &space_wanted = segment_.header().space_wanted;
  if (!fits()) {
    // Half of what waits now must go too: a wake-up for each record would be a switch for each.
    const uint64_t needed = tail_ + bytes - capacity_;
    // SYNC sleep: stored before the heads are read again; a reader stores its head before it reads
    // this word (Reader::free_until).
    space_wanted.store(std::max(needed, head_ + (tail_ - head_) / 2), std::memory_order_seq_cst);
    waiting_ = true;
    if (const int32_t status = refresh_head(); status < 0) return status;
    if (!fits()) return 0;
  }
  if (waiting_) {
    // Relaxed: a reader that still sees the old word signals once more, which costs a look.
    space_wanted.store(0, std::memory_order_relaxed);
    waiting_ = false;
  }
  return 1;
}

int32_t Writer::refresh_head() {
  uint64_t slowest = tail_;
  for (uint32_t i = 0; i < readers_; ++i) {
    // SYNC space: partner is the store of head in Reader::free_until. Also the second half of SYNC
    // sleep in make_room, hence seq_cst.
    const uint64_t head = segment_.header().reader[i].head.load(std::memory_order_seq_cst);
    if (head > tail_ || tail_ - head > capacity_ || head % kRecordAlign != 0)
      return fail(TS_ERR_CORRUPT, "ring: head " + std::to_string(head) + " of reader " +
                                      std::to_string(i) + ", tail " + std::to_string(tail_));
    slowest = std::min(slowest, head);
  }
  head_ = slowest;
  return TS_OK;
}

void Writer::fill_lap(uint64_t bytes) {
  Record &record = segment_.record_at(offset_of(tail_));
  // Relaxed: the store of tail in publish() orders them.
  record.kind.store(Kind::kPadding, std::memory_order_relaxed);
  record.message_bytes.store(0, std::memory_order_relaxed);
  record.length.store(static_cast<int32_t>(bytes - sizeof(Record)), std::memory_order_relaxed);
  tail_ += bytes;
}

void Writer::write_record(Kind kind, std::span<const std::byte> payload, uint64_t message_bytes) {
  const uint64_t offset = offset_of(tail_);
  const auto length = static_cast<int32_t>(payload.size());
  Record &record = segment_.record_at(offset);
  // Relaxed: readers look only below tail; the sign is for those who look at a dead ring. An empty
  // payload has no bytes that could be torn.
  record.length.store(-length, std::memory_order_relaxed);
  record.kind.store(kind, std::memory_order_relaxed);
  record.message_bytes.store(message_bytes, std::memory_order_relaxed);
  if (!payload.empty()) std::memcpy(segment_.payload_at(offset), payload.data(), payload.size());
  // Release; partner is the acquire of length in Reader::look.
  record.length.store(length, std::memory_order_release);
  tail_ += record_bytes(payload.size());
}

void Writer::publish() {
  Header &ring = segment_.header();
  // SYNC data: partner is the load of tail in Reader::refresh_tail. First half of SYNC sleep, whose
  // partner is the store of sleeping in Reader::prepare_sleep.
  ring.tail.store(tail_, std::memory_order_seq_cst);
  for (uint32_t i = 0; i < readers_; ++i) {
    std::atomic<uint32_t> &sleeping = ring.reader[i].sleeping;
    if (sleeping.load(std::memory_order_seq_cst) == 0) continue;
    // Relaxed: clearing it only saves further signals; the eventfd carries the news.
    sleeping.store(0, std::memory_order_relaxed);
    data_fds_[i].signal();
  }
}

int32_t Writer::clear_space() {
  space_fd_.clear();
  return TS_OK;
}

int64_t Writer::fill() {
  if (const int32_t status = refresh_head(); status < 0) return status;
  return static_cast<int64_t>(tail_ - head_);
}

}  // namespace ts::ring
