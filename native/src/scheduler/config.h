// The ranges of the scheduler's configuration.
#pragma once

#include <string>

#include "scheduler/types.h"

namespace ts {

// Returns an empty text, or what is wrong with `config`, with the range allowed.
std::string check_config(const Config &config);

}  // namespace ts
