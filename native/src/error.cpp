#include "error.h"

#include <utility>

namespace {
thread_local std::string last_error;
constexpr int32_t kAbiVersion = 5;
}  // namespace

int32_t ts::fail(ts_status status, std::string message) {
  last_error = std::move(message);
  return status;
}

extern "C" int32_t ts_abi_version(void) { return kAbiVersion; }

extern "C" const char *ts_last_error(void) { return last_error.c_str(); }
