// A ring of variable-length records: one writer, 1..8 readers that each see every message.
//
// Three handshakes, each a pair of marked lines in ring_writer.cpp and ring_reader.cpp:
//   SYNC data   the writer publishes tail, a reader takes it: the bytes below tail are its to read.
//   SYNC space  a reader publishes head, the writer takes it: the bytes below are its to overwrite.
//   SYNC sleep  who is about to wait stores a word and looks once more; who publishes looks at that
//               word afterwards. All four are seq_cst, so at least one of the two sees the other.
//
// Functions that can fail return a negative ts_status (ts_last_error says why).
#pragma once

#include <span>
#include <vector>

#include "ring_layout.h"

namespace ts::ring {

// A descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  Descriptor &operator=(Descriptor &&other) noexcept;
  ~Descriptor();

  // A duplicate of `fd`, invalid when there is none to be had.
  static Descriptor duplicate(int fd);

  int get() const { return fd_; }
  bool valid() const { return fd_ >= 0; }
  void signal() const;  // of an eventfd: makes it readable
  void clear() const;   // of an eventfd: makes it unreadable until the next signal

 private:
  int fd_ = -1;
};

struct Shape {
  uint64_t capacity;
  uint64_t epoch;
  uint32_t readers;
};

// The memory of a ring, mapped or (in tests) borrowed.
class Segment {
 public:
  Segment() = default;
  explicit Segment(std::span<std::byte> borrowed) : memory_(borrowed) {}
  Segment(Segment &&other) noexcept;
  Segment &operator=(Segment &&other) noexcept;
  ~Segment();

  static int32_t map(int fd, uint64_t capacity, Segment &out);

  // Writes an empty ring.
  int32_t format(const Shape &shape);
  // Checks that the memory holds a ring of `capacity` and `epoch`.
  int32_t validate(uint64_t capacity, uint64_t epoch) const;
  // Reads a tail or head from which an end starts.
  static int32_t position(const std::atomic<uint64_t> &word, uint64_t &out);

  Header &header() const { return *reinterpret_cast<Header *>(memory_.data()); }
  Record &record_at(uint64_t offset) const {
    return *reinterpret_cast<Record *>(memory_.data() + kDataOffset + offset);
  }
  std::byte *payload_at(uint64_t offset) const {
    return memory_.data() + kDataOffset + offset + sizeof(Record);
  }

 private:
  std::span<std::byte> memory_;
  bool mapped_ = false;
};

int32_t check_capacity(uint64_t capacity);

class Writer {
 public:
  // `segment` has been validated for `shape`; `tail` is its position. fill() comes first: it
  // reads and checks the heads.
  Writer(Segment segment, const Shape &shape, uint64_t tail, std::vector<Descriptor> data_fds,
         Descriptor space_fd);

  int32_t send(std::span<const std::byte> message);  // 1 sent, 0 full
  int32_t clear_space();
  int64_t fill();
  int space_fd() const { return space_fd_.get(); }

 private:
  int32_t send_fragments(std::span<const std::byte> message);
  int32_t put(Kind kind, std::span<const std::byte> payload, uint64_t message_bytes);
  int32_t make_room(uint64_t bytes);
  int32_t refresh_head();
  void fill_lap(uint64_t bytes);
  void write_record(Kind kind, std::span<const std::byte> payload, uint64_t message_bytes);
  void publish();
  uint64_t offset_of(uint64_t position) const { return position & (capacity_ - 1); }

  Segment segment_;
  const uint64_t capacity_;
  const uint32_t readers_;
  std::vector<Descriptor> data_fds_;
  Descriptor space_fd_;
  uint64_t tail_;
  uint64_t head_ = 0;  // of the slowest reader, as last seen
  bool waiting_ = false;
  std::vector<std::byte> partial_;  // the message whose first `partial_sent_` bytes are in the ring
  size_t partial_sent_ = 0;
};

class Reader {
 public:
  // `segment` has been validated; `index` is below its number of readers, `head` its position.
  Reader(Segment segment, const Shape &shape, uint32_t index, uint64_t head, Descriptor data_fd,
         Descriptor space_fd, bool poison);

  int32_t receive(ts_ring_record &out);  // 1 a message, 0 empty
  int32_t release();
  int32_t prepare_sleep();  // 1 empty and armed, 0 messages are there
  int32_t clear_wakeup();
  int64_t fill();
  int data_fd() const { return data_fd_.get(); }

 private:
  struct Entry {
    Kind kind;
    uint64_t payload;
    uint64_t bytes;
    uint64_t message_bytes;
  };
  enum class Holding { kNothing, kRecord, kAssembled };

  int32_t refresh_tail(std::memory_order order);
  int32_t look(Entry &out) const;
  int32_t append_fragment(const Entry &entry);
  void drop_partial();
  void free_until(uint64_t head);
  void poison_record(uint64_t head_next);
  uint64_t offset_of(uint64_t position) const { return position & (capacity_ - 1); }

  Segment segment_;
  const uint64_t capacity_;
  const uint32_t readers_;
  const uint32_t index_;
  const bool poison_;
  Descriptor data_fd_;
  Descriptor space_fd_;
  uint64_t head_;
  uint64_t tail_;  // as last seen
  Holding holding_ = Holding::kNothing;
  uint64_t held_bytes_ = 0;
  std::vector<std::byte> assembled_;
  uint64_t assembling_bytes_ = 0;  // of the message in `assembled_`; 0: none
};

}  // namespace ts::ring
