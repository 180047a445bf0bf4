// A step in flight: the rows of its plan, and the ticket that pins what they name.
//
// A residency whose owner went away while the step names it is held here until the step is closed.
// Steps are closed in the order in which they were planned.
#pragma once

#include <cstdint>
#include <vector>

#include "scheduler/request.h"
#include "scheduler/types.h"

namespace ts {

struct StepRow {
  Request *request;
  int32_t slot;
  int32_t context;  // tokens before its first; an upper bound for decode rows
  int32_t tokens;
  int32_t ids_max;  // ids that its result may carry; 0: not sampled
  bool decode;
};

struct Orphan {
  Residency residency;
  PerGroup<int32_t> returning;  // pages that come back when it is dropped
};

struct Step {
  StepId id = 0;
  std::vector<StepRow> rows;
  std::vector<Orphan> orphans;
};

}  // namespace ts
