// Pages for a running request, from whoever loses least by giving them up.
//
// Eviction comes first, inside Memory. It does not know what the pages are for, only which requests
// have a row in the step that is being planned: those are left alone.
#pragma once

#include <cstdint>

#include "scheduler/board.h"

namespace ts {

enum class Room {
  kMade,    // the pages are allocated
  kComing,  // enough comes back with steps in flight
  kNone,    // the request itself was retracted
};

// Allocates the pages of `request` up to `tokens` tokens, retracting others, or itself, for them.
// `step` is the step that is being planned.
Room make_room(Board &board, Request &request, int32_t tokens, StepId step);

}  // namespace ts
