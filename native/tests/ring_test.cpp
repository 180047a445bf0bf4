// The ring: laps, padding, fragments, back-pressure, wake-ups, broadcast, poison, broken peers.
//
// Segments are heap blocks of exactly the right size, so that the address sanitizer sees any access
// outside, and both ends share one address, so that the thread sanitizer sees any race.

#include "ring.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

namespace {

using ts::ring::Descriptor;
using ts::ring::Header;
using ts::ring::kDataOffset;
using ts::ring::Kind;
using ts::ring::Reader;
using ts::ring::Record;
using ts::ring::record_bytes;
using ts::ring::Segment;
using ts::ring::Shape;
using ts::ring::Writer;

using Bytes = std::vector<std::byte>;
constexpr uint64_t kSmall = 4096;
constexpr uint64_t kEpoch = 7;

Bytes pattern(size_t bytes, uint32_t seed) {
  Bytes out(bytes);
  for (size_t i = 0; i < bytes; ++i) out[i] = static_cast<std::byte>((seed * 131 + i * 7) & 0xFF);
  return out;
}

bool readable(int fd, int timeout_ms = 0) {
  pollfd entry{fd, POLLIN, 0};
  return poll(&entry, 1, timeout_ms) == 1;
}

Descriptor new_eventfd() { return Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)); }

// A ring with both ends in this process.
class Ring {
 public:
  explicit Ring(uint64_t capacity = kSmall, uint32_t reader_count = 1, bool poison = false)
      : bytes_(kDataOffset + capacity),
        memory_(static_cast<std::byte *>(std::aligned_alloc(4096, bytes_))),
        space_(new_eventfd()) {
    std::memset(memory_.get(), 0, bytes_);
    const Shape shape{capacity, kEpoch, reader_count};
    CHECK_EQ(segment().format(shape), TS_OK);
    std::vector<Descriptor> data;
    for (uint32_t i = 0; i < reader_count; ++i) {
      Descriptor fd = new_eventfd();
      data.push_back(Descriptor::duplicate(fd.get()));
      readers.push_back(std::make_unique<Reader>(segment(), shape, i, 0, std::move(fd),
                                                 Descriptor::duplicate(space_.get()), poison));
    }
    writer = std::make_unique<Writer>(segment(), shape, 0, std::move(data),
                                      Descriptor::duplicate(space_.get()));
  }

  Segment segment() const { return Segment(std::span(memory_.get(), bytes_)); }
  Header &header() const { return segment().header(); }
  std::span<std::byte> memory() const { return {memory_.get(), bytes_}; }
  int space_fd() const { return space_.get(); }
  Reader &reader() const { return *readers.front(); }

  std::unique_ptr<Writer> writer;
  std::vector<std::unique_ptr<Reader>> readers;

 private:
  struct Free {
    void operator()(std::byte *memory) const { std::free(memory); }
  };
  size_t bytes_;
  std::unique_ptr<std::byte, Free> memory_;
  Descriptor space_;
};

Bytes copy_of(const ts_ring_record &record) {
  const auto *data = reinterpret_cast<const std::byte *>(record.data);
  return Bytes(data, data + record.bytes);
}

std::optional<Bytes> take(Reader &reader) {
  ts_ring_record record;
  const int32_t status = reader.receive(record);
  CHECK(status >= 0);
  if (status == 0) return std::nullopt;
  Bytes out = copy_of(record);
  CHECK_EQ(reader.release(), TS_OK);
  return out;
}

void expect(Reader &reader, const Bytes &wanted) {
  const std::optional<Bytes> seen = take(reader);
  CHECK(seen.has_value());
  CHECK(*seen == wanted);
}

int fill_up(Ring &ring, const Bytes &message) {
  int sent = 0;
  for (int32_t status; (status = ring.writer->send(message)) != 0; ++sent) CHECK_EQ(status, 1);
  return sent;
}

}  // namespace

TEST(carries_messages_in_order_over_many_laps) {
  for (const uint32_t readers : {1U, 3U}) {
    Ring ring(kSmall, readers);
    std::mt19937 random(readers);
    std::uniform_int_distribution<size_t> size(0, kSmall / 2 - sizeof(Record));
    for (uint32_t i = 0; i < 5000; ++i) {
      const Bytes message = pattern(i % 4 == 0 ? size(random) : size(random) % 100, i);
      CHECK_EQ(ring.writer->send(message), 1);
      for (const auto &reader : ring.readers) expect(*reader, message);
    }
    for (const auto &reader : ring.readers) CHECK(!take(*reader));
  }
}

TEST(the_largest_whole_record_fits_an_empty_ring_anywhere) {
  Ring ring;
  const Bytes largest = pattern(kSmall / 2 - sizeof(Record), 1);
  const Bytes nothing;
  for (uint64_t offset = 0; offset < kSmall; offset += 16) {
    CHECK_EQ(ring.writer->send(largest), 1);
    expect(ring.reader(), largest);
    CHECK_EQ(ring.writer->send(nothing), 1);
    expect(ring.reader(), nothing);
  }
}

TEST(reads_in_place) {
  Ring ring;
  const Bytes message = pattern(100, 3);
  CHECK_EQ(ring.writer->send(message), 1);
  ts_ring_record record;
  CHECK_EQ(ring.reader().receive(record), 1);
  CHECK_EQ(record.bytes, 100U);
  CHECK_EQ(reinterpret_cast<const std::byte *>(record.data), ring.memory().data() + record.offset);
  CHECK_EQ(ring.reader().receive(record), TS_ERR_ILLEGAL);
  CHECK_EQ(ring.reader().release(), TS_OK);
  CHECK_EQ(ring.reader().release(), TS_ERR_ILLEGAL);
}

TEST(a_full_ring_refuses_and_asks_for_space) {
  Ring ring;
  const Bytes message = pattern(240, 5);  // 256 with its header
  CHECK_EQ(fill_up(ring, message), 16);
  CHECK_EQ(ring.writer->fill(), 4096);
  CHECK_EQ(ring.reader().fill(), 4096);
  for (int i = 0; i < 7; ++i) expect(ring.reader(), message);
  CHECK(!readable(ring.space_fd()));  // no wake-up for each record
  expect(ring.reader(), message);
  CHECK(readable(ring.space_fd()));  // half is free
  CHECK_EQ(ring.writer->send(message), 1);
  CHECK(!readable(ring.space_fd()));
  for (int i = 0; i < 9; ++i) expect(ring.reader(), message);
  CHECK(!take(ring.reader()));
  CHECK(!readable(ring.space_fd()));
  CHECK_EQ(ring.writer->fill(), 0);
}

TEST(a_large_message_waits_until_all_of_it_fits) {
  Ring ring;
  const Bytes small = pattern(240, 1);  // 256 with its header
  for (int i = 0; i < 12; ++i) {
    CHECK_EQ(ring.writer->send(small), 1);
    expect(ring.reader(), small);
  }
  CHECK_EQ(fill_up(ring, small), 16);
  // 1,024 bytes of padding and 2,016 of the record: twelve small ones must go.
  const Bytes large = pattern(2000, 2);
  CHECK_EQ(ring.writer->send(large), 0);
  for (int i = 0; i < 11; ++i) expect(ring.reader(), small);
  CHECK(!readable(ring.space_fd()));
  CHECK_EQ(ring.writer->send(large), 0);
  expect(ring.reader(), small);
  CHECK(!readable(ring.space_fd()));  // asked for again, with half of the rest to go
  for (int i = 0; i < 2; ++i) expect(ring.reader(), small);
  CHECK(readable(ring.space_fd()));
  CHECK_EQ(ring.writer->send(large), 1);
  for (int i = 0; i < 2; ++i) expect(ring.reader(), small);
  expect(ring.reader(), large);
}

TEST(a_message_larger_than_the_ring_arrives_whole) {
  Ring ring(kSmall, 2);
  const Bytes before = pattern(10, 1);
  for (const size_t bytes : {kSmall / 2 - sizeof(Record) + 1, kSmall, size_t{100'000}}) {
    const Bytes large = pattern(bytes, 2);
    CHECK_EQ(ring.writer->send(before), 1);
    for (const auto &reader : ring.readers) expect(*reader, before);
    std::array<std::optional<Bytes>, 2> seen;
    int turns = 0;
    for (; ring.writer->send(large) == 0; ++turns) {
      for (const auto &reader : ring.readers) CHECK(!take(*reader));
      CHECK(readable(ring.space_fd()));
    }
    CHECK(turns >= static_cast<int>(bytes / kSmall) - 1);
    for (const auto &reader : ring.readers) expect(*reader, large);
    CHECK_EQ(ring.writer->fill(), 0);
  }
  CHECK_EQ(ring.writer->send(before), 1);
  for (const auto &reader : ring.readers) expect(*reader, before);
}

TEST(a_large_message_that_is_given_up_is_never_seen) {
  Ring ring;
  const Bytes large = pattern(10'000, 1);
  Bytes similar = large;
  similar.back() ^= std::byte{1};
  const Bytes small = pattern(10, 3);
  CHECK_EQ(ring.writer->send(large), 0);
  CHECK(!take(ring.reader()));
  CHECK_EQ(ring.writer->send(small), 1);
  expect(ring.reader(), small);
  CHECK_EQ(ring.writer->send(large), 0);
  CHECK(!take(ring.reader()));
  while (ring.writer->send(similar) == 0) CHECK(!take(ring.reader()));
  expect(ring.reader(), similar);
  CHECK(!take(ring.reader()));
}

TEST(refuses_a_message_above_the_limit) {
  Ring ring;
  const Bytes one(1);
  CHECK_EQ(ring.writer->send({one.data(), size_t{TS_RING_MESSAGE_MAX} + 1}), TS_ERR_ARGUMENT);
}

TEST(wakes_a_sleeping_reader_once) {
  Ring ring;
  const Bytes message = pattern(20, 1);
  CHECK_EQ(ring.writer->send(message), 1);
  CHECK(!readable(ring.reader().data_fd()));  // it was awake
  CHECK_EQ(ring.reader().prepare_sleep(), 0);
  expect(ring.reader(), message);
  CHECK_EQ(ring.reader().prepare_sleep(), 1);
  CHECK_EQ(ring.writer->send(message), 1);
  CHECK(readable(ring.reader().data_fd()));
  ring.reader().clear_wakeup();
  CHECK_EQ(ring.writer->send(message), 1);
  CHECK(!readable(ring.reader().data_fd()));
  expect(ring.reader(), message);
  expect(ring.reader(), message);
}

TEST(the_writer_waits_for_the_slowest_reader) {
  Ring ring(kSmall, 3);
  const Bytes message = pattern(240, 1);
  CHECK_EQ(fill_up(ring, message), 16);
  for (size_t i = 0; i < 2; ++i)
    while (take(*ring.readers[i])) continue;
  CHECK_EQ(ring.writer->send(message), 0);
  for (int i = 0; i < 16; ++i) expect(*ring.readers[2], message);
  CHECK(readable(ring.space_fd()));
  CHECK_EQ(ring.writer->send(message), 1);
}

TEST(poisons_what_no_reader_holds_any_more) {
  Ring ring(kSmall, 2, true);
  const Bytes message = pattern(64, 1);
  CHECK_EQ(ring.writer->send(message), 1);
  ts_ring_record first, second;
  CHECK_EQ(ring.readers[0]->receive(first), 1);
  CHECK_EQ(ring.readers[1]->receive(second), 1);
  CHECK_EQ(ring.readers[0]->release(), TS_OK);
  CHECK(copy_of(second) == message);
  CHECK_EQ(ring.readers[1]->release(), TS_OK);
  CHECK(copy_of(second) == Bytes(64, std::byte{0xDB}));
}

TEST(a_torn_record_is_never_delivered) {
  Ring ring;
  Record &record = ring.segment().record_at(0);
  record.kind.store(Kind::kWhole);
  record.message_bytes.store(100);
  record.length.store(-100);
  CHECK(!take(ring.reader()));  // the writer died before it published
  ring.header().tail.store(record_bytes(100));
  ts_ring_record out;
  CHECK_EQ(ring.reader().receive(out), TS_ERR_CORRUPT);
}

TEST(broken_records_are_refused) {
  struct Case {
    const char *what;
    int32_t length;
    Kind kind;
    uint64_t message_bytes;
    uint64_t tail;
  };
  const std::array cases{
      Case{"longer than what is committed", 200, Kind::kWhole, 200, 64},
      Case{"longer than the lap", 5000, Kind::kWhole, 5000, 4096},
      Case{"unknown kind", 16, static_cast<Kind>(9), 16, 32},
      Case{"kind zero", 16, static_cast<Kind>(0), 16, 32},
      Case{"fragment without a first one", 16, Kind::kNextFragment, 64, 32},
      Case{"fragment of nothing", 0, Kind::kFirstFragment, 64, 16},
      Case{"fragment beyond its message", 64, Kind::kFirstFragment, 16, 80},
      Case{"message above the limit", 16, Kind::kFirstFragment, UINT64_MAX, 32},
      Case{"tail beyond the ring", 16, Kind::kWhole, 16, 8192},
      Case{"tail between records", 16, Kind::kWhole, 16, 33},
  };
  for (const Case &broken : cases) {
    Ring ring;
    Record &record = ring.segment().record_at(0);
    record.length.store(broken.length);
    record.kind.store(broken.kind);
    record.message_bytes.store(broken.message_bytes);
    ring.header().tail.store(broken.tail);
    ts_ring_record out;
    if (ring.reader().receive(out) != TS_ERR_CORRUPT)
      check::failed(__FILE__, __LINE__, broken.what);
  }
}

TEST(a_broken_head_stops_the_writer) {
  for (const uint64_t head : {uint64_t{8}, uint64_t{4112}, ~uint64_t{15}}) {
    Ring ring;
    const Bytes message = pattern(240, 1);
    CHECK_EQ(fill_up(ring, message), 16);
    ring.header().reader[0].head.store(head);
    CHECK_EQ(ring.writer->fill(), TS_ERR_CORRUPT);
    CHECK_EQ(ring.writer->send(message), TS_ERR_CORRUPT);
  }
}

// Any bytes at all in shared memory: errors are fine, accesses outside or endless loops are not.
TEST(survives_random_damage) {
  std::mt19937_64 random(20240501);
  for (int round = 0; round < 3000; ++round) {
    Ring ring(kSmall, 2, round % 2 == 0);
    for (int step = 0; step < 40; ++step) {
      const Bytes message = pattern(random() % 3000, static_cast<uint32_t>(step));
      if (ring.writer->send(message) < 0) break;
      const size_t place = random() % 3 == 0 ? kDataOffset + random() % kSmall : random() % 1024;
      const auto value = static_cast<std::byte>(random() % 5 == 0 ? random() : 0xFF);
      if (random() % 4 == 0) ring.memory()[place] = value;
      ts_ring_record record;
      for (int i = 0; i < 3 && ring.reader().receive(record) == 1; ++i) {
        volatile unsigned sum = 0;
        for (uint64_t j = 0; j < record.bytes; ++j) sum = sum + record.data[j];
        ring.reader().release();
      }
    }
  }
}

TEST(an_attach_checks_every_field) {
  const auto status_after = [](auto damage) {
    Ring ring;
    damage(ring.header());
    return ring.segment().validate(kSmall, kEpoch);
  };
  CHECK_EQ(status_after([](Header &) {}), TS_OK);
  CHECK_EQ(status_after([](Header &header) { header.magic.store(1); }), TS_ERR_CORRUPT);
  CHECK_EQ(status_after([](Header &header) { header.version = 2; }), TS_ERR_CORRUPT);
  CHECK_EQ(status_after([](Header &header) { header.capacity = 8192; }), TS_ERR_CORRUPT);
  CHECK_EQ(status_after([](Header &header) { header.epoch = 8; }), TS_ERR_CORRUPT);
  CHECK_EQ(status_after([](Header &header) { header.readers = 0; }), TS_ERR_CORRUPT);
  CHECK_EQ(status_after([](Header &header) { header.readers = 9; }), TS_ERR_CORRUPT);
}

TEST(the_c_border) {
  const Descriptor segment(memfd_create("ring", MFD_CLOEXEC));
  const Descriptor data = new_eventfd();
  const Descriptor space = new_eventfd();
  const int32_t data_fd = data.get();
  CHECK_EQ(ts_ring_segment_bytes(5000), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_ring_segment_bytes(2048), TS_ERR_ARGUMENT);
  const int64_t bytes = ts_ring_segment_bytes(kSmall);
  CHECK_EQ(ts_ring_format(segment.get(), kSmall, kEpoch, 1), TS_ERR_CORRUPT);  // too short
  CHECK_EQ(ftruncate(segment.get(), bytes), 0);
  CHECK_EQ(ts_ring_format(segment.get(), kSmall, kEpoch, 9), TS_ERR_ARGUMENT);
  ts_ring_writer *writer = nullptr;
  ts_ring_reader *reader = nullptr;
  const auto open_writer = [&](uint64_t epoch, uint32_t readers) {
    return ts_ring_writer_open(segment.get(), &data_fd, readers, space.get(), kSmall, epoch,
                               &writer);
  };
  const auto open_reader = [&](uint32_t index, int32_t fd) {
    return ts_ring_reader_open(segment.get(), index, fd, space.get(), kSmall, kEpoch, 0, &reader);
  };
  CHECK_EQ(open_writer(kEpoch, 1), TS_ERR_CORRUPT);  // not formatted
  CHECK_EQ(ts_ring_format(segment.get(), kSmall, kEpoch, 1), TS_OK);
  CHECK_EQ(open_writer(kEpoch + 1, 1), TS_ERR_CORRUPT);
  CHECK(std::string(ts_last_error()).find("epoch is 7, expected 8") != std::string::npos);
  CHECK_EQ(open_writer(kEpoch, 2), TS_ERR_CORRUPT);
  CHECK_EQ(open_reader(1, data_fd), TS_ERR_ARGUMENT);
  CHECK_EQ(open_reader(0, -1), TS_ERR_ARGUMENT);
  CHECK_EQ(open_writer(kEpoch, 1), TS_OK);
  CHECK_EQ(open_reader(0, data_fd), TS_OK);
  CHECK_EQ(ts_ring_prepare_sleep(reader), 1);
  CHECK_EQ(ts_ring_send(writer, "hello", 5), 1);
  CHECK(readable(ts_ring_reader_data_fd(reader)));
  CHECK_EQ(ts_ring_clear_wakeup(reader), TS_OK);
  CHECK(!readable(data_fd));
  CHECK_EQ(ts_ring_reader_fill(reader), 32);
  CHECK_EQ(ts_ring_writer_fill(writer), 32);
  // Another end starts where this one is: a record is seen again until it is released.
  ts_ring_reader_close(reader);
  CHECK_EQ(open_reader(0, data_fd), TS_OK);
  ts_ring_record record;
  CHECK_EQ(ts_ring_receive(reader, &record), 1);
  CHECK_EQ(std::memcmp(record.data, "hello", 5), 0);
  CHECK_EQ(ts_ring_release(reader), TS_OK);
  ts_ring_reader_close(reader);
  ts_ring_writer_close(writer);
  CHECK_EQ(open_writer(kEpoch, 1), TS_OK);
  CHECK_EQ(ts_ring_writer_fill(writer), 0);
  CHECK_EQ(ts_ring_clear_space(writer), TS_OK);
  CHECK(!readable(ts_ring_writer_space_fd(writer)));
  ts_ring_writer_close(writer);
}

namespace {

// Every message says its number in its first bytes; its length follows from the number.
Bytes numbered(uint32_t number, size_t bytes_max) {
  Bytes message = pattern(4 + (number * 2654435761U >> 8) % bytes_max, number);
  std::memcpy(message.data(), &number, 4);
  return message;
}

void write_all(Ring &ring, uint32_t messages, size_t bytes_max) {
  for (uint32_t i = 0; i < messages; ++i) {
    const Bytes message = numbered(i, bytes_max);
    while (ring.writer->send(message) == 0) CHECK(readable(ring.space_fd(), 20'000));
  }
}

void read_all(Reader &reader, uint32_t messages, size_t bytes_max) {
  for (uint32_t i = 0; i < messages;) {
    if (const std::optional<Bytes> seen = take(reader)) {
      CHECK(*seen == numbered(i, bytes_max));
      ++i;
    } else if (reader.prepare_sleep() == 1) {
      CHECK(readable(reader.data_fd(), 20'000));
      reader.clear_wakeup();
    }
  }
}

void run_threads(Ring &ring, uint32_t messages, size_t bytes_max) {
  std::vector<std::thread> threads;
  for (const auto &reader : ring.readers)
    threads.emplace_back([&] { read_all(*reader, messages, bytes_max); });
  write_all(ring, messages, bytes_max);
  for (std::thread &thread : threads) thread.join();
  CHECK_EQ(ring.writer->fill(), 0);
}

}  // namespace

TEST(threads_one_reader) {
  Ring ring;
  run_threads(ring, 100'000, 100);
}

TEST(threads_one_reader_fragments) {
  Ring ring;
  run_threads(ring, 3'000, 20'000);
}

TEST(threads_three_readers) {
  Ring ring(kSmall, 3, true);
  run_threads(ring, 20'000, 3'000);
}

CHECK_MAIN()
