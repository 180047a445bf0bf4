// One request as the scheduler knows it: its limits, its tokens, its state and how far it has come.
//
//   0 ........ kv_tokens ........ planned ........ known
//   [ KV written ][ in steps in flight ][ to be planned ]       while prefilling
//   once decoding: KV is written below known - 1, and `pending` outputs at most are in flight
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "scheduler/sequence.h"
#include "scheduler/states.h"
#include "scheduler/types.h"

namespace ts {

struct Session;

struct Request {
  RequestId id;
  uint64_t arrival;  // order of submission: breaks every tie
  int64_t submitted_us;
  uint64_t session_id;
  int32_t priority;
  int32_t max_tokens;
  std::vector<int32_t> end_ids;
  bool score = false;  // every token of the prompt is to be scored
  Sequence sequence;
  Session *session = nullptr;
  State state = Submitted{};

  int32_t planned = 0;    // prefill: known tokens that a step was planned for
  int32_t pending = 0;    // upper bound of the output tokens in flight
  int32_t in_flight = 0;  // steps in flight that name it
  int32_t retractions = 0;
  int32_t cached_tokens = -1;  // hit at the first admission; -1 before
  int32_t claims_begin = 0;    // pages of its prefix that it has promised to compute
  int32_t claims_end = 0;
  bool waits = false;  // for the page `waits_for`, which another one computes
  Hash waits_for{};
  int32_t wait_told = 0;     // the ts_wait that the trace was told last; 0: none
  uint64_t refused_at = 0;   // Memory::returns() when admission found no room; 0: never tried
  uint64_t passed_over = 0;  // newest plan in which it can have no (more) chunk tokens
  StepId planned_in = 0;     // newest plan in which it has a row

  Kind kind() const { return ts::kind(state); }
  Residency &residency() { return *residency_of(state); }
  // Upper bound of tokens that it will ever have KV for.
  int32_t tokens_max() const { return sequence.prompt_tokens() + max_tokens; }
  // Tokens that have KV, or that a step in flight gives theirs; of one that runs.
  int32_t computed() const { return decodes(kind()) ? sequence.known() - 1 : planned; }
  // Its rows are to be scored: until the first output, which comes after all scores.
  bool scores() const { return score && sequence.outputs() == 0; }
  int32_t outputs_left() const { return max_tokens - sequence.outputs(); }
  bool ends_with(int32_t token) const {
    return std::find(end_ids.begin(), end_ids.end(), token) != end_ids.end();
  }
};

// Who goes first among those that wait for the same thing.
struct Earlier {
  bool operator()(const Request *a, const Request *b) const {
    return a->priority != b->priority ? a->priority > b->priority : a->arrival < b->arrival;
  }
};

}  // namespace ts
