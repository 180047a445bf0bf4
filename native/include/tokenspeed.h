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
  TS_ERR_ARGUMENT = -1,   /* an argument is out of its range */
  TS_ERR_ILLEGAL = -2,    /* this event is illegal in this state */
  TS_ERR_UNKNOWN = -3,    /* no such request, step or ticket */
  TS_ERR_DUPLICATE = -4,  /* that id is in use */
  TS_ERR_NEVER_FITS = -5, /* no amount of waiting makes room */
  TS_ERR_CAPACITY = -6,   /* a caller-owned buffer is too small, or the ring is full */
  TS_ERR_CORRUPT = -7,    /* shared memory does not hold what it must */
  TS_ERR_CLOSED = -8,     /* this end was closed */
  TS_ERR_INVARIANT = -9,  /* an audit failed: a bug of ours */
  TS_ERR_MEMORY = -10     /* the allocator refused */
} ts_status;

int32_t ts_abi_version(void);
const char *ts_last_error(void);

/* ---- trace ---------------------------------------------------------------------------------- */

/* A buffer of the latest points: what its writers did, and when. It lies in a memory file, always
 * takes the next point and overwrites the oldest. Several threads of one process may write through
 * one handle; readers map it read-only, and what was overwritten before they read it is counted.
 * A null handle takes every point and keeps none. */
typedef struct ts_trace ts_trace;
typedef struct ts_trace_reader ts_trace_reader;

/* The meaning of kind, request, step and value is told in tokenspeed/points.py. */
typedef struct {
  int64_t time_ns; /* CLOCK_MONOTONIC */
  uint64_t request;
  int64_t value;
  uint32_t step; /* the low 32 bits */
  uint16_t kind; /* a ts_point_kind, from 1 on */
  uint16_t zero;
} ts_trace_point;

typedef enum {
  TS_POINT_RECEIVED = 1,
  TS_POINT_OPENED = 2,
  TS_POINT_TOKENIZE_BEGIN = 3,
  TS_POINT_TOKENIZED = 4,
  TS_POINT_SUBMITTED = 5,
  TS_POINT_WAITS = 6,
  TS_POINT_ADMITTED = 7,
  TS_POINT_CHUNK = 8,
  TS_POINT_RESULT = 9,
  TS_POINT_RETRACTED = 10,
  TS_POINT_ENDED = 11,
  TS_POINT_CANCELLED = 12,
  TS_POINT_REFUSED = 13,
  TS_POINT_TEXT = 14,
  TS_POINT_DELTA = 15,
  TS_POINT_WRITTEN = 16,
  TS_POINT_FINISHED = 17,
  TS_POINT_ENCODE_BEGIN = 18,
  TS_POINT_PLAN_BEGIN = 32,
  TS_POINT_PLANNED = 33,
  TS_POINT_PLAN_SENT = 34,
  TS_POINT_PLAN_RECEIVED = 35,
  TS_POINT_LAUNCH_BEGIN = 36,
  TS_POINT_UPLOADED = 37,
  TS_POINT_LAUNCHED = 38,
  TS_POINT_COMPUTE_BEGIN = 39,
  TS_POINT_STAGE = 40,
  TS_POINT_COMPUTE_END = 41,
  TS_POINT_IDS_DOWN = 42,
  TS_POINT_RESULT_SENT = 43,
  TS_POINT_RESULT_RECEIVED = 44,
  TS_POINT_APPLIED = 45,
  TS_POINT_BATCH_SENT = 46,
  TS_POINT_RING_SENT = 64,
  TS_POINT_RING_RECEIVED = 65,
  TS_POINT_RING_FULL = 66,
  TS_POINT_TURN_BEGIN = 80,
  TS_POINT_TURN_END = 81,
  TS_POINT_GC_BEGIN = 82,
  TS_POINT_GC_END = 83,
  TS_POINT_STARTED = 84
} ts_point_kind;

/* Why a request has to wait: the value of TS_POINT_WAITS. */
typedef enum {
  TS_WAIT_SLOTS = 1,
  TS_WAIT_PAGES = 2,
  TS_WAIT_PREFIX = 3,
  TS_WAIT_RETRACTED = 4,
  TS_WAIT_TURN = 5
} ts_wait;

enum { TS_TRACE_CAPACITY_MIN = 64, TS_TRACE_CAPACITY_MAX = 1048576 };

/* Bytes of a buffer of `capacity` points (a power of two). */
int64_t ts_trace_bytes(uint64_t capacity);
/* Makes the memory file `fd`, of that size and all zero, a buffer. */
int32_t ts_trace_format(int32_t fd, uint64_t capacity);

/* TS_ERR_CORRUPT unless the file holds a buffer. The descriptor may be closed afterwards. */
int32_t ts_trace_open(int32_t fd, ts_trace **out);
void ts_trace_close(ts_trace *trace);
void ts_trace_put(ts_trace *trace, uint32_t kind, uint64_t request, uint64_t step, int64_t value);
/* A point of the past, or one whose time is known already. */
void ts_trace_put_at(ts_trace *trace, int64_t time_ns, uint32_t kind, uint64_t request,
                     uint64_t step, int64_t value);
/* One point for each of `count` requests, all with the time of the call. */
void ts_trace_put_all(ts_trace *trace, uint32_t kind, uint64_t step, const uint64_t *requests,
                      const int64_t *values, int32_t count);
/* Puts `count` points, each at its own time, and returns the nanoseconds that all of them took. */
int64_t ts_trace_put_timed(ts_trace *trace, uint32_t kind, int64_t count);

int32_t ts_trace_reader_open(int32_t fd, ts_trace_reader **out);
/* Moves at most `max` points to `out`, the oldest first, and returns how many. Points of several
 * threads may be a little out of order. */
int64_t ts_trace_read(ts_trace_reader *reader, ts_trace_point *out, int64_t max);
/* Points that were overwritten before they were read. */
int64_t ts_trace_lost(ts_trace_reader *reader);
/* From now on only points written later are read. */
int32_t ts_trace_skip(ts_trace_reader *reader);
void ts_trace_reader_close(ts_trace_reader *reader);

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

/* Opening fails with TS_ERR_CORRUPT unless the segment holds a ring of just this shape and epoch.
 */
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
/* From now on each message sent, and each that found the ring full, is a point of `trace` (null:
 * none) with `edge` as its step. The trace must outlive the handle. */
int32_t ts_ring_writer_trace(ts_ring_writer *writer, ts_trace *trace, uint32_t edge);
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
int32_t ts_ring_reader_trace(ts_ring_reader *reader, ts_trace *trace, uint32_t edge);
void ts_ring_reader_close(ts_ring_reader *reader);

/* ---- waiter -------------------------------------------------------------------------------- */

/* A thread that waits for CUDA events, one after the other in the order of ts_waiter_wait, and
 * makes an eventfd readable. It loads the driver by name; nothing of CUDA is linked. A handle
 * belongs to one thread. A wait costs no processor time if the event was made with the blocking
 * flag. A null handle gives TS_ERR_CLOSED. */
typedef struct ts_waiter ts_waiter;

typedef struct {
  uint64_t token;
  int64_t done_us; /* CLOCK_MONOTONIC, when the thread knew of the event */
  int32_t status;  /* 0, or the driver's CUresult */
  int32_t zero;
} ts_waiter_done;

enum { TS_WAITER_EVENTS_MAX = 64 };

/* `library` is the driver, as dlopen takes it ("libcuda.so.1"). Makes the primary context of
 * `device` current in the thread, nowhere else. TS_ERR_ARGUMENT if the driver or the device is not
 * there. */
int32_t ts_waiter_create(const char *library, int32_t device, ts_waiter **out);
/* The eventfd: readable exactly while ts_waiter_next has something; only to be watched. */
int32_t ts_waiter_fd(ts_waiter *waiter);
/* Waits for `event`, a CUevent (a cudaEvent_t is one) that was recorded and lives until its end was
 * fetched. 0 stands for an event that has come: it is done when all before it are. TS_ERR_CAPACITY
 * if TS_WAITER_EVENTS_MAX are waited for or not fetched. */
int32_t ts_waiter_wait(ts_waiter *waiter, uint64_t event, uint64_t token);
/* 1: *out is the next event that has come, or that the driver will not wait for. 0: none. */
int32_t ts_waiter_next(ts_waiter *waiter, ts_waiter_done *out);
/* Writes the name and the meaning of a status, cut to `bytes` with the final zero; returns the
 * length. */
int32_t ts_waiter_status_text(ts_waiter *waiter, int32_t status, char *out, int32_t bytes);
/* Frees the handle; events not yet waited for are dropped. 1: the thread has ended and given its
 * context back. 0: it still waited for an event after `limit_ms`, and is left to itself with all it
 * needs; it ends when the driver lets it go, and until then that event must not be destroyed. */
int32_t ts_waiter_destroy(ts_waiter *waiter, int32_t limit_ms);

/* ---- scheduler ---------------------------------------------------------------------------- */

/* A deterministic core: events in, plan out. It has no clock (each event carries the caller's
 * monotonic now_us), makes no system call and knows no thread: one caller at a time.
 * The same events give the same plans, bit for bit. */
typedef struct ts_scheduler ts_scheduler;

typedef struct {
  int32_t page_tokens;       /* tokens of a page, 1..65536 */
  int32_t groups;            /* cache groups, 1..4 */
  int32_t pages_total[4];    /* per group, page 0 (padding) included */
  int32_t windows[4];        /* per group: tokens that a query looks back; 0: all */
  int32_t slots;             /* slots 1..slots; slot 0 is padding */
  int32_t step_tokens;       /* prefill tokens of a step in which nothing decodes */
  int32_t step_tokens_mixed; /* prefill tokens of a step while something decodes */
  int32_t max_model_len;     /* prompt and output tokens of one request */
  int32_t overlap;           /* 0 or 1: steps planned before the result of an earlier one is back */
  int32_t width;             /* query tokens of a decode row */
  int32_t prefix_caching;    /* 0 or 1 */
  int32_t growth_tokens;     /* output of a running request for which admission keeps pages free */
} ts_scheduler_config;

typedef struct {
  uint64_t request;
  uint64_t session;   /* requests of a session share its turn */
  uint64_t space_low; /* namespace: prefixes are shared only inside one */
  uint64_t space_high;
  int32_t priority;   /* higher goes first */
  int32_t max_tokens; /* output tokens, resumed ones included; 0: the prompt alone is computed */
  const int32_t *prompt;
  const int32_t *resume;  /* output ids known from an earlier life */
  const int32_t *end_ids; /* each ends the request */
  int32_t prompt_len;
  int32_t resume_len;
  int32_t end_ids_len;
  int32_t score; /* 1: every token of the prompt is to be scored, so none is taken from the cache */
} ts_submission;

typedef struct {
  uint64_t request;
  int32_t slot;
  int32_t zero;
} ts_opening;

/* One step. The buffers are the caller's; *_max count elements: rows of 4 int32 (slot, tokens,
 * context, flags: 1 sample, 2 decode, 4 score), pages of 4 int32 (slot, group, index, page), ids
 * of 1. `ids` are those of the rows without the decode flag. Everything else is filled in. */
typedef struct {
  ts_opening *openings;
  int32_t *rows;
  int32_t *ids;
  int32_t *pages;
  int32_t openings_max, rows_max, ids_max, pages_max;
  int32_t openings_len, rows_len, ids_len, pages_len;
  uint64_t step;
  int32_t sample_rows;
  int32_t tokens; /* of all rows */
} ts_plan;

typedef struct {
  uint64_t request;
  int32_t first;  /* output index of the first id */
  int32_t offset; /* where its ids begin in the ids of the result */
  int32_t count;  /* ids accepted */
  int32_t finish; /* 0: goes on, 1: end id, 2: max_tokens, 3: the row failed */
} ts_outcome;

typedef struct {
  int64_t steps, retractions, tokens_prefilled, tokens_decoded, tokens_cached, step_us;
  int64_t tokens_retracted;    /* computed tokens that retractions made to be computed again */
  int64_t losses, tokens_lost; /* the same of running requests, for want of the executor */
  int32_t requests_waiting, requests_running, steps_in_flight, tombstones;
  int32_t pages_total[4]; /* page 0 left out: the classes sum to it */
  int32_t pages_free[4], pages_owned[4], pages_cached_idle[4], pages_cached_leased[4];
  int32_t pages_zombie[4];
  int32_t slots_free, slots_zombie;
} ts_scheduler_stats_t;

int32_t ts_scheduler_create(const ts_scheduler_config *config, ts_scheduler **scheduler);
void ts_scheduler_destroy(ts_scheduler *scheduler);

/* Fills the four *_max of `plan`: buffers of that size are never too small. */
int32_t ts_scheduler_plan_limits(const ts_scheduler *scheduler, ts_plan *plan);

/* Returns 1 if the request is in, 0 if a cancel that came before swallowed it. TS_ERR_NEVER_FITS,
 * TS_ERR_DUPLICATE and TS_ERR_ARGUMENT leave nothing behind. */
int32_t ts_scheduler_submit(ts_scheduler *scheduler, int64_t now_us,
                            const ts_submission *submission);
/* Returns 1 if the request was live. An unknown id leaves a tombstone for its submit. */
int32_t ts_scheduler_cancel(ts_scheduler *scheduler, int64_t now_us, uint64_t request);
/* The request will never be submitted: its tombstone goes. */
int32_t ts_scheduler_dropped(ts_scheduler *scheduler, int64_t now_us, uint64_t request);
/* The reply ends with `tokens_kept` output tokens. Returns 1 if the request was live. */
int32_t ts_scheduler_verdict(ts_scheduler *scheduler, int64_t now_us, uint64_t request,
                             int32_t tokens_kept);

/* Returns 1 and fills `plan`, or 0 when there is nothing to do or enough steps are in flight. */
int32_t ts_scheduler_plan(ts_scheduler *scheduler, int64_t now_us, ts_plan *plan);

/* The ids of the oldest step in flight: `counts` per sampled row in row order, and the ids one row
 * after the other. A count of -1 says that the row failed: its request ends, and nobody finds a
 * cached page any more that begins as its prompt does. Writes an outcome for each row whose request
 * is live (at most `rows`) and returns how many. TS_ERR_UNKNOWN for a step that is not in flight,
 * TS_ERR_ILLEGAL for one that is not the oldest. */
int32_t ts_scheduler_result(ts_scheduler *scheduler, int64_t now_us, uint64_t step, int32_t step_us,
                            const int32_t *counts, int32_t rows, const int32_t *ids,
                            int32_t ids_len, ts_outcome *outcomes, int32_t outcomes_max);
/* The oldest step in flight could not be computed. The live requests it names end; writes their ids
 * and returns how many. */
int32_t ts_scheduler_step_failed(ts_scheduler *scheduler, int64_t now_us, uint64_t step,
                                 uint64_t *requests, int32_t requests_max);
/* The executor died with all its pages: steps in flight are void, what ran is computed again. */
int32_t ts_scheduler_executor_lost(ts_scheduler *scheduler, int64_t now_us);
/* Drops every cached page that no request holds, and lets nobody find the others any more. Returns
 * the number of pages freed. */
int32_t ts_scheduler_flush(ts_scheduler *scheduler, int64_t now_us);

/* Prompt tokens that a request found in the cache when it was first admitted (0 before). Known
 * until the result after the one that ended it. */
int32_t ts_scheduler_cached_tokens(const ts_scheduler *scheduler, uint64_t request);
int32_t ts_scheduler_stats(const ts_scheduler *scheduler, ts_scheduler_stats_t *stats);
/* Walks everything; TS_ERR_INVARIANT with a text that names what is wrong. */
int32_t ts_scheduler_check(const ts_scheduler *scheduler);

/* The state machine: states 0..ts_state_count()-1, events likewise. ts_state_next returns the next
 * state or TS_ERR_ILLEGAL; ts_scheduler_state the state of a request. */
int32_t ts_state_count(void);
int32_t ts_event_count(void);
const char *ts_state_name(int32_t state);
const char *ts_event_name(int32_t event);
int32_t ts_state_next(int32_t state, int32_t event);
int32_t ts_scheduler_state(const ts_scheduler *scheduler, uint64_t request);

/* From now on what befalls a request or a step is a point of `trace` (null: none), at the time of
 * its event; it changes nothing else. The trace must outlive the scheduler. */
int32_t ts_scheduler_trace(ts_scheduler *scheduler, ts_trace *trace);

/* From now on every event is written to a log that begins with the configuration; only right after
 * ts_scheduler_create. ts_scheduler_log moves at most `max` bytes of it to `data` and returns how
 * many. */
int32_t ts_scheduler_record(ts_scheduler *scheduler);
int64_t ts_scheduler_log(ts_scheduler *scheduler, uint8_t *data, int64_t max);
/* Feeds a whole log to a new scheduler. TS_ERR_CORRUPT if it cannot be read, or if a plan or an
 * answer differs from the recorded one. */
int32_t ts_scheduler_replay(const uint8_t *log, int64_t len, ts_scheduler **scheduler);

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
