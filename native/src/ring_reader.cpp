// A reading end of a ring. A reader alone moves its head. What lies in shared memory is read once,
// checked, and only then used: a broken peer can make a reader fail, not read outside the ring.

#include <cstring>
#include <string>

#include "error.h"
#include "ring.h"

namespace ts::ring {

namespace {

constexpr int kPoison = 0xDB;

int32_t corrupt(const std::string &what, uint64_t position) {
  return fail(TS_ERR_CORRUPT, "ring: " + what + " at position " + std::to_string(position));
}

}  // namespace

Reader::Reader(Segment segment, const Shape &shape, uint32_t index, uint64_t head,
               Descriptor data_fd, Descriptor space_fd, bool poison)
    : segment_(std::move(segment)),
      capacity_(shape.capacity),
      readers_(shape.readers),
      index_(index),
      poison_(poison),
      data_fd_(std::move(data_fd)),
      space_fd_(std::move(space_fd)),
      head_(head),
      tail_(head) {}

int32_t Reader::receive(ts_ring_record &out) {
  if (holding_ != Holding::kNothing)
    return fail(TS_ERR_ILLEGAL, "ring: release the message at hand before receiving the next");
  for (;;) {
    if (tail_ == head_) {
      if (const int32_t status = refresh_tail(std::memory_order_acquire); status < 0) return status;
      if (tail_ == head_) return 0;
    }
    Entry entry;
    if (const int32_t status = look(entry); status < 0) return status;
    if (entry.kind == Kind::kPadding) {
      head_ += entry.bytes;  // published with the record that follows
      continue;
    }
    if (entry.kind == Kind::kWhole) {
      drop_partial();
      const uint64_t offset = offset_of(head_);
      out.data = reinterpret_cast<const uint8_t *>(segment_.payload_at(offset));
      out.bytes = entry.payload;
      out.offset = static_cast<int64_t>(kDataOffset + offset + sizeof(Record));
      holding_ = Holding::kRecord;
      held_bytes_ = entry.bytes;
      return 1;
    }
    if (const int32_t status = append_fragment(entry); status < 0) return status;
    free_until(head_ + entry.bytes);
    if (assembled_.size() == assembling_bytes_) {
      out.data = reinterpret_cast<const uint8_t *>(assembled_.data());
      out.bytes = assembling_bytes_;
      out.offset = -1;
      holding_ = Holding::kAssembled;
      return 1;
    }
  }
}

int32_t Reader::release() {
  switch (holding_) {
    case Holding::kNothing:
      return fail(TS_ERR_ILLEGAL, "ring: nothing to release");
    case Holding::kRecord:
      if (poison_) poison_record(head_ + held_bytes_);
      free_until(head_ + held_bytes_);
      break;
    case Holding::kAssembled:
      assembled_ = {};  // such messages are rare, and as large as they like
      assembling_bytes_ = 0;
      break;
  }
  holding_ = Holding::kNothing;
  return TS_OK;
}

int32_t Reader::prepare_sleep() {
  std::atomic<uint32_t> &sleeping = segment_.header().reader[index_].sleeping;
  // SYNC sleep: stored before tail is read again; the writer stores tail before it reads this word
  // (Writer::publish).
  sleeping.store(1, std::memory_order_seq_cst);
  if (const int32_t status = refresh_tail(std::memory_order_seq_cst); status < 0) return status;
  if (tail_ == head_) return 1;
  // Relaxed: at worst the writer signals once for nothing.
  sleeping.store(0, std::memory_order_relaxed);
  return 0;
}

int32_t Reader::clear_wakeup() {
  // Relaxed: as above.
  segment_.header().reader[index_].sleeping.store(0, std::memory_order_relaxed);
  data_fd_.clear();
  return TS_OK;
}

int64_t Reader::fill() {
  if (const int32_t status = refresh_tail(std::memory_order_acquire); status < 0) return status;
  return static_cast<int64_t>(tail_ - head_);
}

int32_t Reader::refresh_tail(std::memory_order order) {
  // SYNC data: partner is the store of tail in Writer::publish.
  const uint64_t tail = segment_.header().tail.load(order);
  if (tail < head_ || tail - head_ > capacity_ || tail % kRecordAlign != 0)
    return corrupt("tail " + std::to_string(tail), head_);
  tail_ = tail;
  return TS_OK;
}

int32_t Reader::look(Entry &out) const {
  const uint64_t offset = offset_of(head_);
  const Record &record = segment_.record_at(offset);
  // Acquire; partner is the release of length in Writer::write_record.
  const int32_t length = record.length.load(std::memory_order_acquire);
  const Kind kind = record.kind.load(std::memory_order_relaxed);
  const uint64_t message_bytes = record.message_bytes.load(std::memory_order_relaxed);
  if (length < 0) return corrupt("a record of length " + std::to_string(length), head_);
  const auto payload = static_cast<uint64_t>(length);
  const uint64_t bytes = record_bytes(payload);
  if (bytes > tail_ - head_ || bytes > capacity_ - offset)
    return corrupt("a record of length " + std::to_string(length), head_);
  if (kind < Kind::kWhole || kind > Kind::kNextFragment)
    return corrupt("a record of kind " + std::to_string(static_cast<uint32_t>(kind)), head_);
  out = {kind, payload, bytes, message_bytes};
  return TS_OK;
}

int32_t Reader::append_fragment(const Entry &entry) {
  const bool first = entry.kind == Kind::kFirstFragment;
  if (first) {
    drop_partial();
    assembling_bytes_ = entry.message_bytes;
  }
  if (entry.payload == 0 || entry.message_bytes != assembling_bytes_ ||
      entry.message_bytes > TS_RING_MESSAGE_MAX ||
      entry.payload > assembling_bytes_ - assembled_.size())
    return corrupt("a fragment that does not belong to its message", head_);
  // Grows with what arrives, not with what a first fragment claims.
  const std::byte *payload = segment_.payload_at(offset_of(head_));
  assembled_.insert(assembled_.end(), payload, payload + entry.payload);
  return TS_OK;
}

// A new message begins: the writer gave up the one before, if any.
void Reader::drop_partial() {
  assembled_.clear();
  assembling_bytes_ = 0;
}

void Reader::free_until(uint64_t head) {
  const uint64_t head_before =
      segment_.header().reader[index_].head.load(std::memory_order_relaxed);
  head_ = head;
  Header &ring = segment_.header();
  // SYNC space: partner is the load of head in Writer::refresh_head. First half of SYNC sleep,
  // whose partner is the store of space_wanted in Writer::make_room.
  ring.reader[index_].head.store(head, std::memory_order_seq_cst);
  const uint64_t wanted = ring.space_wanted.load(std::memory_order_seq_cst);
  // Each reader signals once, when it passes the mark: the slowest is the last to do so.
  if (head_before < wanted && wanted <= head) space_fd_.signal();
}

// Overwrites the payload at hand if no other reader may still be reading it.
void Reader::poison_record(uint64_t head_next) {
  for (uint32_t i = 0; i < readers_; ++i) {
    // Acquire; partner is the store of head in the other reader's free_until: its reads came first.
    if (i != index_ && segment_.header().reader[i].head.load(std::memory_order_acquire) < head_next)
      return;
  }
  const uint64_t offset = offset_of(head_);
  std::memset(segment_.payload_at(offset), kPoison, head_next - head_ - sizeof(Record));
}

}  // namespace ts::ring
