// Whether a waiting request may have a slot and pages now, and what it finds in the cache.
//
// A request is let in when the pages of its whole prompt, some growth of its own and the expected
// growth of all that run are there: so that retracting stays rare. What no pool could ever hold is
// refused at submission.
#pragma once

#include <string>

#include "scheduler/board.h"

namespace ts {

enum class Admission {
  kAdmitted,
  kShared,  // waits: a running prefill is computing its next page
  kNoRoom,  // waits for a slot or pages
  kLater,   // this plan lists enough pages; the next one takes it
};

// Pages of `group` that a request of `tokens` tokens holds at most at a time.
int32_t pages_peak(const Config &config, int32_t group, int32_t tokens);

// Returns an empty text, or why a request of that size can never run, with the numbers.
std::string never_fits(const Config &config, int64_t prompt_tokens, int64_t max_tokens);

// Admits `request`, or says why not. `pages_listed` counts the cached pages that the current plan
// names for newly opened slots.
Admission admit(Board &board, Request &request, int32_t &pages_listed);

// Cached pages named for newly opened slots by one plan, at most.
int32_t pages_listed_max(const Config &config);

}  // namespace ts
