/* The whole C ABI of the native library.
 *
 * Fixed-width fields, opaque handles, caller-owned outputs. A function that can fail returns a
 * negative ts_status and leaves everything as it was; ts_last_error says why (per thread).
 * No callbacks, no exceptions across this border.
 *
 * cffi reads the part between the two markers: no preprocessor lines there.
 */
#ifndef TOKENSPEED_H
#define TOKENSPEED_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cffi: begin */

/* ---- common ---------------------------------------------------------------------------- */

typedef enum {
  TS_OK = 0,
  TS_ERR_ARGUMENT = -1,  /* an argument is out of its range */
  TS_ERR_ILLEGAL = -2,   /* this event is illegal in this state */
  TS_ERR_UNKNOWN = -3,   /* no such request, step or ticket */
  TS_ERR_DUPLICATE = -4, /* that id is in use */
  TS_ERR_NEVER_FITS = -5,/* no amount of waiting makes room */
  TS_ERR_CAPACITY = -6,  /* a caller-owned buffer is too small, or the ring is full */
  TS_ERR_CORRUPT = -7,   /* shared memory does not hold what it must */
  TS_ERR_CLOSED = -8,    /* this end was closed */
  TS_ERR_INVARIANT = -9, /* an audit failed: a bug of ours */
  TS_ERR_MEMORY = -10    /* the allocator refused */
} ts_status;

int32_t ts_abi_version(void);
const char *ts_last_error(void);

/* ---- rings ------------------------------------------------------------------------------- */

/* A ring carries messages from one writer to 1..8 readers, each of which gets every message, in
 * order, once and whole. It lives in a shared segment; a handle is one end of it and belongs to one
 * thread. Handles duplicate the eventfds that they are given and map the segment themselves: every
 * descriptor passed in may be closed after the call. A null handle gives TS_ERR_CLOSED. */

typedef struct ts_ring_writer ts_ring_writer;
typedef struct ts_ring_reader ts_ring_reader;

/* A message to be read in place, until ts_ring_release. */
typedef struct {
  const uint8_t *data;
  uint64_t bytes;
  int64_t offset; /* of data in the segment; -1: put together in a buffer of the handle */
} ts_ring_record;

enum {
  TS_RING_READERS_MAX = 8,
  TS_RING_CAPACITY_MIN = 4096,
  TS_RING_CAPACITY_MAX = 1073741824,
  TS_RING_MESSAGE_MAX = 1073741824, /* bytes of one message */
  TS_RING_POISON = 1                /* reader flag: overwrite records when they are released */
};

/* Bytes of the segment of a ring of `capacity` bytes (a power of two). */
int64_t ts_ring_segment_bytes(uint64_t capacity);
/* Writes an empty ring into a segment of that size. */
int32_t ts_ring_format(int32_t segment_fd, uint64_t capacity, uint64_t epoch, uint32_t readers);

/* Opening fails with TS_ERR_CORRUPT unless the segment holds a ring of just this shape and epoch. */
int32_t ts_ring_writer_open(int32_t segment_fd, const int32_t *data_fds, uint32_t readers,
                            int32_t space_fd, uint64_t capacity, uint64_t epoch,
                            ts_ring_writer **out);
/* 1: sent, and sleeping readers woken. 0: full; the space eventfd becomes readable once it is worth
 * trying the same message again. A message above half the capacity may be partly written by then;
 * trying another one gives it up, and no reader sees it. */
int32_t ts_ring_send(ts_ring_writer *writer, const void *data, uint64_t bytes);
int32_t ts_ring_clear_space(ts_ring_writer *writer);
int64_t ts_ring_writer_fill(ts_ring_writer *writer); /* bytes in use, by the slowest reader */
int32_t ts_ring_writer_space_fd(ts_ring_writer *writer);
void ts_ring_writer_close(ts_ring_writer *writer);

int32_t ts_ring_reader_open(int32_t segment_fd, uint32_t index, int32_t data_fd, int32_t space_fd,
                            uint64_t capacity, uint64_t epoch, uint32_t flags,
                            ts_ring_reader **out);
/* 1: *out is the next message. 0: empty. One message at a time: release it first. */
int32_t ts_ring_receive(ts_ring_reader *reader, ts_ring_record *out);
int32_t ts_ring_release(ts_ring_reader *reader);
/* 1: empty, and the next send makes the data eventfd readable. 0: messages are there. */
int32_t ts_ring_prepare_sleep(ts_ring_reader *reader);
int32_t ts_ring_clear_wakeup(ts_ring_reader *reader);
int64_t ts_ring_reader_fill(ts_ring_reader *reader); /* bytes that wait for this reader */
int32_t ts_ring_reader_data_fd(ts_ring_reader *reader);
void ts_ring_reader_close(ts_ring_reader *reader);

/* ---- scheduler ---------------------------------------------------------------------------- */

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
