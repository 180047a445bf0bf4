// Descriptors and the memory of a ring: mapping, formatting, and the checks of an attach.

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "error.h"
#include "ring.h"

namespace ts::ring {

namespace {

std::string system_error(const char *call) { return std::string(call) + ": " + strerror(errno); }

int32_t corrupt(const char *what, uint64_t seen, uint64_t wanted) {
  return fail(TS_ERR_CORRUPT, std::string("ring header: ") + what + " is " + std::to_string(seen) +
                                  ", expected " + std::to_string(wanted));
}

}  // namespace

Descriptor &Descriptor::operator=(Descriptor &&other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (valid()) close(fd_);
}

Descriptor Descriptor::duplicate(int fd) { return Descriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0)); }

void Descriptor::signal() const {
  // The only failure of a valid eventfd is a full counter, and then it is readable already.
  const uint64_t one = 1;
  while (write(fd_, &one, sizeof one) < 0 && errno == EINTR) continue;
}

void Descriptor::clear() const {
  uint64_t count;
  while (read(fd_, &count, sizeof count) < 0 && errno == EINTR) continue;
}

Segment::Segment(Segment &&other) noexcept
    : memory_(std::exchange(other.memory_, {})), mapped_(std::exchange(other.mapped_, false)) {}

Segment &Segment::operator=(Segment &&other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

Segment::~Segment() {
  if (mapped_) munmap(memory_.data(), memory_.size());
}

int32_t check_capacity(uint64_t capacity) {
  if (std::has_single_bit(capacity) && capacity >= TS_RING_CAPACITY_MIN &&
      capacity <= TS_RING_CAPACITY_MAX)
    return TS_OK;
  return fail(TS_ERR_ARGUMENT, "ring capacity " + std::to_string(capacity) +
                                   ": a power of two from " + std::to_string(TS_RING_CAPACITY_MIN) +
                                   " to " + std::to_string(TS_RING_CAPACITY_MAX) + " is needed");
}

int32_t Segment::map(int fd, uint64_t capacity, Segment &out) {
  if (const int32_t status = check_capacity(capacity); status < 0) return status;
  const size_t bytes = kDataOffset + capacity;
  struct stat info;
  if (fstat(fd, &info) < 0) return fail(TS_ERR_ARGUMENT, system_error("fstat of a segment"));
  if (std::cmp_not_equal(info.st_size, bytes))
    return corrupt("segment size", static_cast<uint64_t>(info.st_size), bytes);
  // Populated: a page fault in the middle of a send would cost more than the send.
  void *base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
  if (base == MAP_FAILED) return fail(TS_ERR_MEMORY, system_error("mmap of a segment"));
  Segment mapped(std::span(static_cast<std::byte *>(base), bytes));
  mapped.mapped_ = true;
  out = std::move(mapped);
  return TS_OK;
}

int32_t Segment::format(const Shape &shape) {
  if (shape.readers < 1 || shape.readers > TS_RING_READERS_MAX)
    return fail(TS_ERR_ARGUMENT, "ring readers: " + std::to_string(shape.readers) +
                                     ", allowed are 1 to " + std::to_string(TS_RING_READERS_MAX));
  Header &ring = header();
  ring.version = kVersion;
  ring.readers = shape.readers;
  ring.capacity = shape.capacity;
  ring.epoch = shape.epoch;
  ring.tail.store(0, std::memory_order_relaxed);
  ring.space_wanted.store(0, std::memory_order_relaxed);
  for (ReaderState &reader : ring.reader) {
    reader.head.store(0, std::memory_order_relaxed);
    reader.sleeping.store(0, std::memory_order_relaxed);
  }
  // Release; its partner is the acquire in validate().
  ring.magic.store(kMagic, std::memory_order_release);
  return TS_OK;
}

int32_t Segment::validate(uint64_t capacity, uint64_t epoch) const {
  const Header &ring = header();
  // Acquire; its partner is the release in format().
  const uint64_t magic = ring.magic.load(std::memory_order_acquire);
  if (magic != kMagic) return corrupt("magic", magic, kMagic);
  if (ring.version != kVersion) return corrupt("version", ring.version, kVersion);
  if (ring.capacity != capacity) return corrupt("capacity", ring.capacity, capacity);
  if (ring.epoch != epoch) return corrupt("epoch", ring.epoch, epoch);
  if (ring.readers < 1 || ring.readers > TS_RING_READERS_MAX)
    return corrupt("number of readers", ring.readers, TS_RING_READERS_MAX);
  return TS_OK;
}

int32_t Segment::position(const std::atomic<uint64_t> &word, uint64_t &out) {
  // Relaxed: the end that asks is the only one that writes this word.
  out = word.load(std::memory_order_relaxed);
  if (out % kRecordAlign == 0) return TS_OK;
  return fail(TS_ERR_CORRUPT, "ring header: position " + std::to_string(out) +
                                  " is no multiple of " + std::to_string(kRecordAlign));
}

}  // namespace ts::ring
