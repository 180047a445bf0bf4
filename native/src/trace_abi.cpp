// The C border of the trace buffers: files checked and mapped, handles made and freed.

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <string>

#include "error.h"
#include "trace.h"

using ts::fail;
using ts::trace::Header;
using ts::trace::kMagic;
using ts::trace::Slot;

struct ts_trace_reader {
  ts::trace::Reader end;
  void *mapping;
  size_t bytes;
};

namespace {

bool possible(uint64_t capacity) {
  return capacity >= TS_TRACE_CAPACITY_MIN && capacity <= TS_TRACE_CAPACITY_MAX &&
         (capacity & (capacity - 1)) == 0;
}

size_t bytes_of(uint64_t capacity) { return offsetof(Header, slots) + capacity * sizeof(Slot); }

int32_t map(int32_t fd, int protection, size_t least, void *&mapping, size_t &bytes) {
  struct stat status = {};
  if (fstat(fd, &status) != 0)
    return fail(TS_ERR_ARGUMENT, std::string("trace: ") + std::strerror(errno));
  bytes = static_cast<size_t>(status.st_size);
  if (bytes < least)
    return fail(TS_ERR_CORRUPT,
                "trace: a file of " + std::to_string(bytes) + " bytes is no buffer");
  mapping = mmap(nullptr, bytes, protection, MAP_SHARED, fd, 0);
  if (mapping != MAP_FAILED) return TS_OK;
  return fail(TS_ERR_ARGUMENT, std::string("trace: ") + std::strerror(errno));
}

int32_t map_buffer(int32_t fd, int protection, void *&mapping, size_t &bytes) {
  if (const int32_t status = map(fd, protection, bytes_of(TS_TRACE_CAPACITY_MIN), mapping, bytes);
      status < 0)
    return status;
  const auto *header = static_cast<const Header *>(mapping);
  const uint64_t capacity = header->capacity.load();
  if (header->magic.load() == kMagic && possible(capacity) && bytes == bytes_of(capacity))
    return TS_OK;
  munmap(mapping, bytes);
  return fail(TS_ERR_CORRUPT, "trace: the file does not hold a trace buffer of this version");
}

template <typename Handle>
int32_t open_handle(int32_t fd, int protection, Handle **out) {
  if (out == nullptr) return fail(TS_ERR_ARGUMENT, "trace: no place for the handle");
  void *mapping = nullptr;
  size_t bytes = 0;
  if (const int32_t status = map_buffer(fd, protection, mapping, bytes); status < 0) return status;
  *out = new (std::nothrow)
      Handle{decltype(Handle::end)(static_cast<Header *>(mapping)), mapping, bytes};
  if (*out != nullptr) return TS_OK;
  munmap(mapping, bytes);
  return fail(TS_ERR_MEMORY, "trace: out of memory");
}

int32_t closed() { return fail(TS_ERR_CLOSED, "the trace reader is closed"); }

}  // namespace

extern "C" {

int64_t ts_trace_bytes(uint64_t capacity) {
  if (possible(capacity)) return static_cast<int64_t>(bytes_of(capacity));
  return fail(TS_ERR_ARGUMENT, "trace: a capacity of " + std::to_string(capacity) +
                                   " points; a power of two from " +
                                   std::to_string(TS_TRACE_CAPACITY_MIN) + " to " +
                                   std::to_string(TS_TRACE_CAPACITY_MAX) + " is needed");
}

int32_t ts_trace_format(int32_t fd, uint64_t capacity) {
  const int64_t wanted = ts_trace_bytes(capacity);
  if (wanted < 0) return static_cast<int32_t>(wanted);
  void *mapping = nullptr;
  size_t bytes = 0;
  if (const int32_t status =
          map(fd, PROT_READ | PROT_WRITE, static_cast<size_t>(wanted), mapping, bytes);
      status < 0)
    return status;
  auto *header = static_cast<Header *>(mapping);
  header->capacity.store(capacity);
  header->magic.store(kMagic);
  munmap(mapping, bytes);
  return TS_OK;
}

int32_t ts_trace_open(int32_t fd, ts_trace **out) {
  return open_handle(fd, PROT_READ | PROT_WRITE, out);
}

void ts_trace_close(ts_trace *trace) {
  if (trace == nullptr) return;
  munmap(trace->mapping, trace->bytes);
  delete trace;
}

void ts_trace_put(ts_trace *trace, uint32_t kind, uint64_t request, uint64_t step, int64_t value) {
  ts::trace::put_now(trace, kind, request, step, value);
}

void ts_trace_put_at(ts_trace *trace, int64_t time_ns, uint32_t kind, uint64_t request,
                     uint64_t step, int64_t value) {
  ts::trace::put(trace, time_ns, kind, request, step, value);
}

void ts_trace_put_all(ts_trace *trace, uint32_t kind, uint64_t step, const uint64_t *requests,
                      const int64_t *values, int32_t count) {
  if (trace == nullptr || count <= 0) return;
  const int64_t time_ns = ts::trace::now_ns();
  const uint64_t first = trace->end.take(static_cast<uint64_t>(count));
  for (int32_t i = 0; i < count; ++i)
    trace->end.fill(first + static_cast<uint64_t>(i), time_ns, kind, requests[i], step, values[i]);
}

int64_t ts_trace_put_timed(ts_trace *trace, uint32_t kind, int64_t count) {
  const int64_t begin_ns = ts::trace::now_ns();
  for (int64_t i = 0; i < count; ++i) ts::trace::put_now(trace, kind, 0, 0, i);
  return ts::trace::now_ns() - begin_ns;
}

int32_t ts_trace_reader_open(int32_t fd, ts_trace_reader **out) {
  return open_handle(fd, PROT_READ, out);
}

int64_t ts_trace_read(ts_trace_reader *reader, ts_trace_point *out, int64_t max) {
  if (reader == nullptr) return closed();
  if (out == nullptr && max > 0) return fail(TS_ERR_ARGUMENT, "trace: no place for the points");
  return reader->end.read(out, max);
}

int64_t ts_trace_lost(ts_trace_reader *reader) {
  return reader == nullptr ? closed() : reader->end.lost();
}

int32_t ts_trace_skip(ts_trace_reader *reader) {
  if (reader == nullptr) return closed();
  reader->end.skip();
  return TS_OK;
}

void ts_trace_reader_close(ts_trace_reader *reader) {
  if (reader == nullptr) return;
  munmap(reader->mapping, reader->bytes);
  delete reader;
}

}  // extern "C"
