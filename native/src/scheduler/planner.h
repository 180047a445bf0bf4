// Plans one step: decode rows for all that can go on, then prefill chunks within the budget.
//
// Reads and moves the board, writes the plan. Oldest first throughout, and whoever finds no page
// may take those of a younger one: so the oldest running request always gets on.
#pragma once

#include <vector>

#include "scheduler/admission.h"
#include "scheduler/board.h"

namespace ts {

class Planner {
 public:
  explicit Planner(Board &board) : board_(board), config_(board.config()) {}

  // Fills the four *_max of `plan`.
  static void limits(const Config &config, ts_plan &plan);

  // Plans a step and puts it in flight; false when there is nothing to do.
  bool plan(int64_t now_us, ts_plan &plan);

 private:
  struct Chunk {
    Request *request;
    int32_t tokens;
  };

  // Decode rows.
  void secure_oldest();
  void decode_rows();
  void decode_row(Request &request);

  // Prefill chunks.
  int32_t chunk_budget() const;
  void chunks(int64_t now_us);
  Request *oldest_prefill();
  Request *next_prefill(int64_t now_us);
  Request *next_retracted();
  bool let_in(Request &request);
  bool able(const Request &request) const;
  bool may_admit() const;
  bool others_wait() const;
  int32_t allot(Request &request, int32_t tokens);
  void extend(Chunk &chunk, int32_t tokens);
  int32_t chunk_tokens(Request &request, int32_t tokens) const;
  void chunk_row(const Chunk &chunk);
  void tell_waits();
  ts_wait wait_reason() const;

  // The plan.
  void row(Request &request, int32_t context, int32_t tokens, int32_t ids_max, bool decode);
  void list_pages(Residency &residency);

  Board &board_;
  const Config &config_;
  uint64_t round_ = 0;  // counts calls of `plan`
  ts_plan *out_ = nullptr;
  Step step_;
  std::vector<Request *> order_;
  std::vector<Request *> prefilling_;
  std::vector<Chunk> chunks_;
  int32_t pages_listed_ = 0;
  int32_t waits_told_ = 0;            // to so many waiting requests,
  ts_wait wait_told_ = TS_WAIT_TURN;  // for this reason, the trace was told that they wait
  bool full_ = false;  // someone who goes first found no room: nothing new in this plan
};

}  // namespace ts
