// The C border of the rings: arguments checked, exceptions turned into codes, handles made and
// freed.

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "error.h"
#include "ring.h"
#include "trace.h"

using ts::fail;
using ts::ring::Descriptor;
using ts::ring::Reader;
using ts::ring::Segment;
using ts::ring::Shape;
using ts::ring::Writer;

// An end and where its points go.
struct ts_ring_writer : Writer {
  using Writer::Writer;
  ts_trace *trace = nullptr;
  uint32_t edge = 0;
};

struct ts_ring_reader : Reader {
  using Reader::Reader;
  ts_trace *trace = nullptr;
  uint32_t edge = 0;
};

namespace {

// Runs `body`; nothing below throws but the allocator.
template <typename Body>
int32_t guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(TS_ERR_MEMORY, "ring: out of memory");
  }
}

int32_t closed() { return fail(TS_ERR_CLOSED, "this end of the ring is closed"); }

int32_t attach(int32_t segment_fd, uint64_t capacity, uint64_t epoch, Segment &segment,
               Shape &shape) {
  if (const int32_t status = Segment::map(segment_fd, capacity, segment); status < 0) return status;
  if (const int32_t status = segment.validate(capacity, epoch); status < 0) return status;
  shape = {capacity, epoch, segment.header().readers};
  if (shape.readers < 1 || shape.readers > TS_RING_READERS_MAX)
    return fail(TS_ERR_CORRUPT, "ring header: number of readers changed during the attach");
  return TS_OK;
}

int32_t duplicate(int32_t fd, Descriptor &out) {
  out = Descriptor::duplicate(fd);
  if (out.valid()) return TS_OK;
  return fail(TS_ERR_ARGUMENT, "descriptor " + std::to_string(fd) + " cannot be duplicated");
}

}  // namespace

extern "C" {

int64_t ts_ring_segment_bytes(uint64_t capacity) {
  if (const int32_t status = ts::ring::check_capacity(capacity); status < 0) return status;
  return static_cast<int64_t>(ts::ring::kDataOffset + capacity);
}

int32_t ts_ring_format(int32_t segment_fd, uint64_t capacity, uint64_t epoch, uint32_t readers) {
  return guarded([&]() -> int32_t {
    Segment segment;
    if (const int32_t status = Segment::map(segment_fd, capacity, segment); status < 0)
      return status;
    return segment.format({capacity, epoch, readers});
  });
}

int32_t ts_ring_writer_open(int32_t segment_fd, const int32_t *data_fds, uint32_t readers,
                            int32_t space_fd, uint64_t capacity, uint64_t epoch,
                            ts_ring_writer **out) {
  return guarded([&]() -> int32_t {
    Segment segment;
    Shape shape;
    if (const int32_t status = attach(segment_fd, capacity, epoch, segment, shape); status < 0)
      return status;
    if (readers != shape.readers)
      return fail(TS_ERR_CORRUPT, "ring header: " + std::to_string(shape.readers) +
                                      " readers, expected " + std::to_string(readers));
    uint64_t tail = 0;
    if (const int32_t status = Segment::position(segment.header().tail, tail); status < 0)
      return status;
    std::vector<Descriptor> data(readers);
    for (uint32_t i = 0; i < readers; ++i)
      if (const int32_t status = duplicate(data_fds[i], data[i]); status < 0) return status;
    Descriptor space;
    if (const int32_t status = duplicate(space_fd, space); status < 0) return status;
    auto writer = std::make_unique<ts_ring_writer>(std::move(segment), shape, tail, std::move(data),
                                                   std::move(space));
    if (const int64_t fill = writer->fill(); fill < 0) return static_cast<int32_t>(fill);
    *out = writer.release();
    return TS_OK;
  });
}

int32_t ts_ring_send(ts_ring_writer *writer, const void *data, uint64_t bytes) {
  if (writer == nullptr) return closed();
  // The time before: a reader may have the message when this call returns.
  const int64_t begin_ns = writer->trace == nullptr ? 0 : ts::trace::now_ns();
  const int32_t sent =
      guarded([&] { return writer->send({static_cast<const std::byte *>(data), bytes}); });
  if (sent >= 0)
    ts::trace::put(writer->trace, begin_ns, sent == 1 ? TS_POINT_RING_SENT : TS_POINT_RING_FULL, 0,
                   writer->edge, static_cast<int64_t>(bytes));
  return sent;
}

int32_t ts_ring_writer_trace(ts_ring_writer *writer, ts_trace *trace, uint32_t edge) {
  if (writer == nullptr) return closed();
  writer->trace = trace;
  writer->edge = edge;
  return TS_OK;
}

int32_t ts_ring_clear_space(ts_ring_writer *writer) {
  return writer == nullptr ? closed() : writer->clear_space();
}

int64_t ts_ring_writer_fill(ts_ring_writer *writer) {
  return writer == nullptr ? closed() : writer->fill();
}

int32_t ts_ring_writer_space_fd(ts_ring_writer *writer) {
  return writer == nullptr ? closed() : writer->space_fd();
}

void ts_ring_writer_close(ts_ring_writer *writer) { delete writer; }

int32_t ts_ring_reader_open(int32_t segment_fd, uint32_t index, int32_t data_fd, int32_t space_fd,
                            uint64_t capacity, uint64_t epoch, uint32_t flags,
                            ts_ring_reader **out) {
  return guarded([&]() -> int32_t {
    Segment segment;
    Shape shape;
    if (const int32_t status = attach(segment_fd, capacity, epoch, segment, shape); status < 0)
      return status;
    if (index >= shape.readers)
      return fail(TS_ERR_ARGUMENT, "reader " + std::to_string(index) + " of a ring for " +
                                       std::to_string(shape.readers));
    uint64_t head = 0;
    if (const int32_t status = Segment::position(segment.header().reader[index].head, head);
        status < 0)
      return status;
    Descriptor data;
    Descriptor space;
    if (const int32_t status = duplicate(data_fd, data); status < 0) return status;
    if (const int32_t status = duplicate(space_fd, space); status < 0) return status;
    auto reader =
        std::make_unique<ts_ring_reader>(std::move(segment), shape, index, head, std::move(data),
                                         std::move(space), (flags & TS_RING_POISON) != 0);
    if (const int64_t fill = reader->fill(); fill < 0) return static_cast<int32_t>(fill);
    *out = reader.release();
    return TS_OK;
  });
}

int32_t ts_ring_receive(ts_ring_reader *reader, ts_ring_record *out) {
  if (reader == nullptr) return closed();
  const int32_t found = guarded([&] { return reader->receive(*out); });
  if (found == 1)
    ts::trace::put_now(reader->trace, TS_POINT_RING_RECEIVED, 0, reader->edge,
                       static_cast<int64_t>(out->bytes));
  return found;
}

int32_t ts_ring_reader_trace(ts_ring_reader *reader, ts_trace *trace, uint32_t edge) {
  if (reader == nullptr) return closed();
  reader->trace = trace;
  reader->edge = edge;
  return TS_OK;
}

int32_t ts_ring_release(ts_ring_reader *reader) {
  return reader == nullptr ? closed() : reader->release();
}

int32_t ts_ring_prepare_sleep(ts_ring_reader *reader) {
  return reader == nullptr ? closed() : reader->prepare_sleep();
}

int32_t ts_ring_clear_wakeup(ts_ring_reader *reader) {
  return reader == nullptr ? closed() : reader->clear_wakeup();
}

int64_t ts_ring_reader_fill(ts_ring_reader *reader) {
  return reader == nullptr ? closed() : reader->fill();
}

int32_t ts_ring_reader_data_fd(ts_ring_reader *reader) {
  return reader == nullptr ? closed() : reader->data_fd();
}

void ts_ring_reader_close(ts_ring_reader *reader) { delete reader; }

}  // extern "C"
