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
  TS_ERR_CLOSED = -8,    /* the other end is gone */
  TS_ERR_INVARIANT = -9, /* an audit failed: a bug of ours */
  TS_ERR_MEMORY = -10    /* the allocator refused */
} ts_status;

int32_t ts_abi_version(void);
const char *ts_last_error(void);

/* ---- rings ------------------------------------------------------------------------------- */

/* ---- scheduler ---------------------------------------------------------------------------- */

/* cffi: end */

#ifdef __cplusplus
}
#endif

#endif
