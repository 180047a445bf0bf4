#include "scheduler/planner.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "scheduler/room.h"

namespace ts {
namespace {

constexpr int32_t kFlagSample = 1;
constexpr int32_t kFlagDecode = 2;
constexpr int32_t kFlagScore = 4;

int32_t round_up(int32_t value, int32_t step) { return (value + step - 1) / step * step; }

}  // namespace

void Planner::limits(const Config &config, ts_plan &plan) {
  const int32_t step_tokens = std::max(config.step_tokens, config.step_tokens_mixed);
  plan.openings_max = config.slots;
  plan.rows_max = config.slots;
  plan.ids_max = step_tokens;
  // Cached pages of opened slots; per row a page that it fills up, one that it begins and one that
  // was secured before; and the whole pages that rows and chunks fill.
  const int32_t per_row = 3 + config.width / config.page_tokens;
  plan.pages_max = pages_listed_max(config) +
                   config.groups * (config.slots * per_row + step_tokens / config.page_tokens + 1);
}

bool Planner::plan(int64_t now_us, ts_plan &plan) {
  const int32_t depth = config_.overlap + (planted(Bug::kDepthIgnored) ? 1 : 0);
  plan.openings_len = plan.rows_len = plan.ids_len = plan.pages_len = plan.sample_rows =
      plan.tokens = 0;
  if (length(board_.steps) > depth) return false;
  ++round_;
  out_ = &plan;
  step_ = Step{.id = board_.next_step, .rows = {}, .orphans = {}};
  step_.rows.reserve(board_.running.size() + 1);
  pages_listed_ = 0;
  full_ = false;

  secure_oldest();
  decode_rows();
  chunks(now_us);
  tell_waits();
  if (step_.rows.empty()) return false;

  plan.step = step_.id;
  ++board_.next_step;
  ++board_.counters.steps;
  board_.steps.push_back(std::move(step_));
  return true;
}

// Gives the oldest running request the next page of its prompt before decode rows take any.
void Planner::secure_oldest() {
  if (board_.running.empty()) return;
  Request &oldest = *board_.running.front();
  if (oldest.kind() != Kind::kPrefilling) return;
  const int32_t next =
      std::min(oldest.sequence.known(), round_up(oldest.planned + 1, config_.page_tokens));
  make_room(board_, oldest, next, step_.id);
}

// ---- decode rows

void Planner::decode_rows() {
  order_.assign(board_.running.begin(), board_.running.end());
  for (Request *request : order_) {
    if (decodes(request->kind()))
      decode_row(*request);  // not if it was retracted for one before it
  }
}

void Planner::decode_row(Request &request) {
  const int32_t left = request.outputs_left() - request.pending;
  if (left <= (planted(Bug::kRowPastLimit) ? -1 : 0)) return;
  const int32_t tokens = std::clamp(left, 1, config_.width);
  const int32_t context = request.sequence.known() - 1 + request.pending;
  if (make_room(board_, request, context + tokens, step_.id) != Room::kMade) return;
  row(request, context, tokens, tokens, true);
  board_.post(request, Event::kDecode);
  board_.counters.tokens_decoded += tokens;
}

// ---- prefill chunks

// Prefill tokens of this step. This is the place for a cost model that keeps a step's time.
int32_t Planner::chunk_budget() const {
  const bool mixed = std::any_of(board_.running.begin(), board_.running.end(),
                                 [](const Request *request) { return decodes(request->kind()); });
  return mixed ? config_.step_tokens_mixed : config_.step_tokens;
}

// The oldest unfinished prefill gets at least half, the others share the rest, and what they leave
// goes to the oldest.
void Planner::chunks(int64_t now_us) {
  chunks_.clear();
  const int32_t budget = chunk_budget();
  int32_t left = budget;
  Request *primary = oldest_prefill();
  if (primary != nullptr) {
    const int32_t half = std::min(budget, round_up((budget + 1) / 2, config_.page_tokens));
    left -= allot(*primary, others_wait() ? half : budget);
  }
  while (left >= config_.page_tokens || (chunks_.empty() && left > 0)) {
    Request *request = next_prefill(now_us);
    if (request == nullptr) break;
    left -= allot(*request, left);
  }
  if (left > 0 && !chunks_.empty() && chunks_.front().request == primary)
    extend(chunks_.front(), left);
  for (const Chunk &chunk : chunks_) chunk_row(chunk);
}

// Collects the running prefills and returns the first of them, or null.
Request *Planner::oldest_prefill() {
  prefilling_.clear();
  for (Request *request : board_.running) {
    if (request->kind() == Kind::kPrefilling) prefilling_.push_back(request);
  }
  const auto first = std::min_element(prefilling_.begin(), prefilling_.end(), Earlier{});
  return first == prefilling_.end() ? nullptr : *first;
}

bool Planner::others_wait() const {
  return prefilling_.size() > 1 || !board_.retracted.empty() ||
         (may_admit() && board_.queue.waiting() > 0);
}

Request *Planner::next_prefill(int64_t now_us) {
  if (Request *request = next_retracted()) return request;
  for (;;) {
    Request *request = board_.queue.next(now_us, prefilling_, may_admit(),
                                         [this](const Request &r) { return able(r); });
    if (request == nullptr || request->kind() == Kind::kPrefilling || let_in(*request))
      return request;
  }
}

// Those that were retracted go before everything new, oldest first.
Request *Planner::next_retracted() {
  for (Request *request : board_.retracted) {
    if (full_) break;
    if (request->in_flight > 0 || !able(*request)) continue;
    if (let_in(*request)) return request;
  }
  return nullptr;
}

bool Planner::let_in(Request &request) {
  const bool is_new = request.kind() == Kind::kSubmitted;
  const Admission answer = admit(board_, request, pages_listed_);
  if (answer == Admission::kAdmitted) return true;
  request.passed_over = round_;
  full_ |= answer != Admission::kShared;
  // Until something comes back, or someone else asks, the next one would find no room again.
  if (is_new && answer == Admission::kNoRoom) board_.no_room_at = board_.memory.returns() + 1;
  return false;
}

// May have chunk tokens in this plan: has had none, and does not wait for another one's page.
bool Planner::able(const Request &request) const {
  return request.passed_over != round_ &&
         !(request.waits && board_.claims.blocks(request, request.waits_for));
}

bool Planner::may_admit() const {
  return !full_ && board_.memory.slots().free() > 0 &&
         board_.no_room_at != board_.memory.returns() + 1 &&
         !(board_.closed && !board_.retracted.empty());
}

// Plans at most `tokens` prompt tokens of `request`, as far as pages are there; returns how many.
int32_t Planner::allot(Request &request, int32_t tokens) {
  request.passed_over = round_;
  const int32_t count = chunk_tokens(request, tokens);
  if (count <= 0) return 0;
  request.residency().cover(request.planned + count);
  board_.queue.charge(request, count);
  chunks_.push_back({&request, count});
  return count;
}

void Planner::extend(Chunk &chunk, int32_t tokens) {
  const int32_t count = chunk_tokens(*chunk.request, chunk.tokens + tokens);
  if (count <= chunk.tokens) return;
  chunk.request->residency().cover(chunk.request->planned + count);
  board_.queue.charge(*chunk.request, count - chunk.tokens);
  chunk.tokens = count;
}

// Tokens of a chunk of at most `tokens`: it ends with the prompt, else with a page if it can.
int32_t Planner::chunk_tokens(Request &request, int32_t tokens) const {
  const int32_t left = request.sequence.known() - request.planned;
  int32_t count = std::min(left, tokens);
  for (int32_t g = 0; g < config_.groups; ++g) {
    const int32_t room = request.residency().room(g, board_.memory.available(g));
    count = std::min(count, room - request.planned);
  }
  if (count == left) return count;
  const int32_t aligned = (request.planned + count) / config_.page_tokens * config_.page_tokens;
  return aligned > request.planned ? aligned - request.planned : count;
}

void Planner::chunk_row(const Chunk &chunk) {
  Request &request = *chunk.request;
  const int32_t context = request.planned;
  const bool last = context + chunk.tokens == request.sequence.known();
  row(request, context, chunk.tokens, last ? 1 : 0, false);
  std::memcpy(out_->ids + out_->ids_len, request.sequence.tokens() + context,
              static_cast<size_t>(chunk.tokens) * sizeof(int32_t));
  out_->ids_len += chunk.tokens;
  request.planned += chunk.tokens;
  board_.tracer.note(TS_POINT_CHUNK, request.id, step_.id, chunk.tokens);
  board_.counters.tokens_prefilled += chunk.tokens;
  if (planted(Bug::kPublishedBeforeResult))
    request.residency().publish(request.sequence, request.planned);
  board_.post(request, last ? Event::kLastChunk : Event::kChunk);
}

// ---- those that wait

void Planner::tell_waits() {
  const int32_t waiting = board_.queue.waiting();
  const ts_wait reason = wait_reason();
  if (!board_.tracer.on() || (waiting == waits_told_ && reason == wait_told_)) return;
  waits_told_ = waiting;
  wait_told_ = reason;
  if (waiting > 0) board_.tell_waits(reason);
}

ts_wait Planner::wait_reason() const {
  if (board_.memory.slots().free() == 0) return TS_WAIT_SLOTS;
  if (board_.closed && !board_.retracted.empty()) return TS_WAIT_RETRACTED;
  return may_admit() ? TS_WAIT_TURN : TS_WAIT_PAGES;
}

// ---- the plan

void Planner::row(Request &request, int32_t context, int32_t tokens, int32_t ids_max, bool decode) {
  Residency &residency = request.residency();
  if (!residency.opened) {
    residency.opened = true;
    out_->openings[out_->openings_len++] = {request.id, residency.slot(), 0};
  }
  list_pages(residency);
  const int32_t flags = (ids_max > 0 ? kFlagSample : 0) | (decode ? kFlagDecode : 0) |
                        (!decode && request.scores() ? kFlagScore : 0);
  int32_t *entry = out_->rows + static_cast<ptrdiff_t>(out_->rows_len++) * 4;
  entry[0] = residency.slot();
  entry[1] = tokens;
  entry[2] = context;
  entry[3] = flags;
  out_->sample_rows += ids_max > 0;
  out_->tokens += tokens;
  step_.rows.push_back({&request, residency.slot(), context, tokens, ids_max, decode});
  request.pending += ids_max;
  board_.pin(request, step_);
}

// Names the pages of the table that no plan has named yet.
void Planner::list_pages(Residency &residency) {
  for (int32_t g = 0; g < config_.groups; ++g) {
    Table &table = residency.table(g);
    if (planted(Bug::kPageNotListed) && table.listed > 0 && table.listed < length(table.pages))
      ++table.listed;
    for (; table.listed < length(table.pages); ++table.listed) {
      int32_t *entry = out_->pages + static_cast<ptrdiff_t>(out_->pages_len++) * 4;
      entry[0] = residency.slot();
      entry[1] = g;
      entry[2] = table.listed;
      entry[3] = at(table.pages, table.listed);
    }
  }
}

}  // namespace ts
