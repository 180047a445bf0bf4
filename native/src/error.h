// The error text of the calling thread, behind ts_last_error.
#pragma once

#include <string>

#include "tokenspeed.h"

namespace ts {

// Keeps `message` for ts_last_error and returns `status`.
int32_t fail(ts_status status, std::string message);

}  // namespace ts
