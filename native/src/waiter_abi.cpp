// The C border of the waiter: arguments checked, exceptions turned into codes, handles made and
// freed.

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <string>

#include "error.h"
#include "waiter.h"

using ts::fail;
using ts::waiter::Waiter;

struct ts_waiter {
  std::shared_ptr<Waiter> shared;
};

namespace {

template <typename Body>
int32_t guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(TS_ERR_MEMORY, "waiter: out of memory");
  }
}

int32_t closed() { return fail(TS_ERR_CLOSED, "the waiter is closed"); }

}  // namespace

extern "C" {

int32_t ts_waiter_create(const char *library, int32_t device, ts_waiter **out) {
  if (library == nullptr || out == nullptr || device < 0)
    return fail(TS_ERR_ARGUMENT, "waiter: a library, a device from 0 on and an output are needed");
  return guarded([&]() -> int32_t {
    auto handle = std::make_unique<ts_waiter>();
    if (const int32_t status = Waiter::start(library, device, handle->shared); status < 0)
      return status;
    *out = handle.release();
    return TS_OK;
  });
}

int32_t ts_waiter_fd(ts_waiter *waiter) {
  return waiter == nullptr ? closed() : waiter->shared->fd();
}

int32_t ts_waiter_wait(ts_waiter *waiter, uint64_t event, uint64_t token) {
  if (waiter == nullptr) return closed();
  return guarded(
      [&] { return waiter->shared->give(reinterpret_cast<ts::waiter::Event>(event), token); });
}

int32_t ts_waiter_next(ts_waiter *waiter, ts_waiter_done *out) {
  if (waiter == nullptr) return closed();
  if (out == nullptr) return fail(TS_ERR_ARGUMENT, "waiter: no place for the answer");
  return waiter->shared->fetch(*out);
}

int32_t ts_waiter_status_text(ts_waiter *waiter, int32_t status, char *out, int32_t bytes) {
  if (waiter == nullptr) return closed();
  if (out == nullptr || bytes < 1) return fail(TS_ERR_ARGUMENT, "waiter: no place for the text");
  return guarded([&] {
    const std::string text = waiter->shared->driver().explain(status);
    const size_t length = std::min(text.size(), static_cast<size_t>(bytes) - 1);
    std::memcpy(out, text.data(), length);
    out[length] = '\0';
    return static_cast<int32_t>(length);
  });
}

int32_t ts_waiter_destroy(ts_waiter *waiter, int32_t limit_ms) {
  if (waiter == nullptr) return closed();
  const int32_t ended = waiter->shared->stop(std::max(limit_ms, 0));
  delete waiter;
  return ended;
}

}  // extern "C"
