// A naive device and a naive book of requests, to check the scheduler's plans against.
//
// It plays the executor: pages hold, per token, a tag of the whole prefix that was computed into
// them, so that a row which reads anything but its own prefix is seen. It knows nothing of hashes,
// classes or leases; what it expects is recomputed from token lists each time. Driven through the
// C ABI alone. A violation is thrown as std::runtime_error.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "tokenspeed.h"

namespace device {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15ULL + 1) {}
  uint64_t next() {
    state_ += 0x9e3779b97f4a7c15ULL;
    uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
  }
  int32_t below(int32_t bound) {
    return static_cast<int32_t>(next() % static_cast<uint64_t>(bound));
  }
  int32_t between(int32_t low, int32_t high) { return low + below(high - low + 1); }
  bool chance(int32_t percent) { return below(100) < percent; }

 private:
  uint64_t state_;
};

using Tag = uint64_t;

inline Tag extend(Tag tag, int32_t token) {
  Random mix(tag ^ (static_cast<uint64_t>(static_cast<uint32_t>(token)) * 0xd6e8feb86659fd93ULL));
  return mix.next() | 1;  // never 0, which is garbage
}

// Throws `what`, which is put together only then.
#define EXPECT(condition, what)                       \
  do {                                                \
    if (!(condition)) throw std::runtime_error(what); \
  } while (false)

inline std::string text(int64_t number) { return std::to_string(number); }

// What the book knows of a request.
struct Entry {
  std::vector<int32_t> tokens;  // prompt and accepted output
  std::vector<int32_t> end_ids;
  int32_t prompt = 0;
  int32_t max_tokens = 0;
  uint64_t space = 0;
  int32_t priority = 0;
  uint64_t arrival = 0;
  int32_t in_flight_max = 0;  // output ids in flight, at most
  bool score = false;
  bool opened = false;
  bool live = true;
  int32_t outputs() const { return static_cast<int32_t>(tokens.size()) - prompt; }
};

struct Slot {
  uint64_t request = 0;
  std::map<std::pair<int32_t, int32_t>, int32_t> table;  // (group, index) -> page
  std::vector<int32_t> tokens;                           // what the device knows of the sequence
  int32_t length = 0;                                    // tokens whose KV is computed
  Tag root = 0;
  bool doomed = false;  // a step that failed was to compute some of it
};

struct Row {
  uint64_t request;
  int32_t ids_max;
  std::vector<int32_t> ids;  // what the device drew
  bool failed = false;       // it could not draw
};

struct Flight {
  uint64_t step;
  bool fails;
  std::vector<Row> rows;
  std::set<std::pair<int32_t, int32_t>> pages;  // (group, page) that it reads or writes
  std::set<int32_t> slots;
};

class Device {
 public:
  Device(const ts_scheduler_config &config, int32_t vocabulary)
      : config_(config), vocabulary_(vocabulary), slots_(static_cast<size_t>(config.slots) + 1) {
    EXPECT(ts_scheduler_create(&config, &core_) == TS_OK,
           std::string("create: ") + ts_last_error());
    EXPECT(ts_scheduler_record(core_) == TS_OK, "record failed");
    ts_scheduler_plan_limits(core_, &plan_);
    openings_.resize(static_cast<size_t>(plan_.openings_max));
    rows_.resize(static_cast<size_t>(plan_.rows_max) * 4);
    ids_.resize(static_cast<size_t>(plan_.ids_max));
    pages_.resize(static_cast<size_t>(plan_.pages_max) * 4);
    plan_.openings = openings_.data();
    plan_.rows = rows_.data();
    plan_.ids = ids_.data();
    plan_.pages = pages_.data();
    content_.resize(4);
    for (int32_t g = 0; g < config.groups; ++g) {
      content_[static_cast<size_t>(g)].resize(static_cast<size_t>(config.pages_total[g]) *
                                              static_cast<size_t>(config.page_tokens));
    }
  }
  ~Device() { ts_scheduler_destroy(core_); }
  Device(const Device &) = delete;
  Device &operator=(const Device &) = delete;

  ts_scheduler *core() { return core_; }
  const std::map<uint64_t, Entry> &book() const { return book_; }
  const std::deque<Flight> &flights() const { return flights_; }
  int64_t live() const {
    return std::count_if(book_.begin(), book_.end(),
                         [](const auto &item) { return item.second.live; });
  }
  int64_t now_us = 0;

  void audit() {
    const int32_t status = ts_scheduler_check(core_);
    EXPECT(status == TS_OK, ts_last_error());
    ts_scheduler_stats_t stats;
    ts_scheduler_stats(core_, &stats);
    for (int32_t g = 0; g < config_.groups; ++g) {
      const int32_t sum = stats.pages_free[g] + stats.pages_owned[g] + stats.pages_cached_idle[g] +
                          stats.pages_cached_leased[g] + stats.pages_zombie[g];
      EXPECT(sum == stats.pages_total[g], "page classes do not sum to the total");
      EXPECT(!flights_.empty() || stats.pages_zombie[g] == 0, "a zombie without a step in flight");
    }
    EXPECT(stats.steps_in_flight == static_cast<int32_t>(flights_.size()),
           "steps in flight differ");
  }

  // ---- events

  void submit(uint64_t id, Entry entry, std::vector<int32_t> resume, uint64_t session) {
    ts_submission submission{};
    submission.request = id;
    submission.session = session;
    submission.space_low = entry.space;
    submission.priority = entry.priority;
    submission.max_tokens = entry.max_tokens;
    submission.score = entry.score;
    submission.prompt = entry.tokens.data();
    submission.prompt_len = static_cast<int32_t>(entry.tokens.size());
    submission.resume = resume.data();
    submission.resume_len = static_cast<int32_t>(resume.size());
    submission.end_ids = entry.end_ids.data();
    submission.end_ids_len = static_cast<int32_t>(entry.end_ids.size());
    const int32_t status = ts_scheduler_submit(core_, now_us, &submission);
    if (tombstones_.erase(id) > 0) {
      EXPECT(status == 0, "a tombstone did not swallow its submit");
      return;
    }
    const auto found = book_.find(id);
    if (found != book_.end() && (found->second.live || named(id))) {
      EXPECT(status == TS_ERR_DUPLICATE, "a duplicate id gave " + text(status));
      return;
    }
    const int32_t all = entry.prompt + entry.max_tokens;
    if (status == TS_ERR_NEVER_FITS) {
      bool fits = all <= config_.max_model_len;
      for (int32_t g = 0; g < config_.groups; ++g) {
        fits &= pages_for(all) <= config_.pages_total[g] - 1;
      }
      EXPECT(!fits, "refused though it fits");
      return;
    }
    EXPECT(status == 1, "submit gave " + text(status) + ": " + ts_last_error());
    entry.tokens.insert(entry.tokens.end(), resume.begin(), resume.end());
    entry.arrival = ++arrivals_;
    book_[id] = std::move(entry);
  }

  void cancel(uint64_t id) {
    const bool live = is_live(id);
    const bool known = book_.contains(id) && (live || named(id));
    EXPECT(ts_scheduler_cancel(core_, now_us, id) == (live ? 1 : 0),
           "cancel gave the wrong answer");
    if (live) book_[id].live = false;
    if (!known) tombstones_.insert(id);
  }

  void dropped(uint64_t id) {
    EXPECT(ts_scheduler_dropped(core_, now_us, id) == TS_OK, "dropped failed");
    tombstones_.erase(id);
  }

  void verdict(uint64_t id, int32_t kept) {
    const bool known = book_.contains(id) && (is_live(id) || named(id));
    const int32_t status = ts_scheduler_verdict(core_, now_us, id, kept);
    if (known && is_live(id) && kept > book_[id].outputs()) {
      EXPECT(status == TS_ERR_ARGUMENT, "a verdict beyond the output gave " + text(status));
      return;
    }
    if (known && !is_live(id) && status == TS_ERR_ARGUMENT) return;
    EXPECT(status == (is_live(id) ? 1 : 0), "verdict gave the wrong answer");
    if (is_live(id)) book_[id].live = false;
  }

  // Plans a step and computes it at once (its result is told later); false if there is none.
  // A step with `fails` computes nothing; with `row_fails` its last row, if sampled, fails alone.
  bool plan(bool fails, bool row_fails = false) {
    const uint64_t oldest = oldest_running();
    const int32_t status = ts_scheduler_plan(core_, now_us, &plan_);
    EXPECT(status == 0 || status == 1, "plan gave " + text(status) + ": " + ts_last_error());
    if (oldest != 0)
      EXPECT(ts_scheduler_state(core_, oldest) != 4, "the oldest running request was retracted");
    if (status == 0) return false;
    EXPECT(static_cast<int32_t>(flights_.size()) <= config_.overlap, "too many steps in flight");
    Flight flight{plan_.step, fails, {}, {}, {}};
    open_slots();
    list_pages();
    int32_t prefilled = 0, ids_used = 0, sampled = 0;
    bool decodes = false;
    std::set<uint64_t> seen;
    std::map<std::pair<int32_t, int32_t>, uint64_t> written;
    for (int32_t i = 0; i < plan_.rows_len; ++i) {
      const int32_t *row = rows_.data() + static_cast<ptrdiff_t>(i) * 4;
      EXPECT(row[0] >= 1 && row[0] <= config_.slots && row[1] >= 1, "a row is out of range");
      Slot &slot = slots_[static_cast<size_t>(row[0])];
      EXPECT(slot.request != 0 && is_live(slot.request),
             "a row names request " + text(static_cast<int64_t>(slot.request)) + ", which is over");
      EXPECT(seen.insert(slot.request).second, "two rows of one request");
      const bool decode = (row[3] & 2) != 0;
      const bool sample = (row[3] & 1) != 0;
      decodes |= decode;
      if (decode) {
        decode_row(slot, row[1], row[2], sample);
      } else {
        EXPECT(((row[3] & 4) != 0) == scores(slot.request), "the score flag is wrong");
        prefill_row(slot, row[1], row[2], sample, ids_.data() + ids_used);
        ids_used += row[1];
        prefilled += row[1];
      }
      touch(row[0], slot, row[1], decode, flight, written);
      compute(slot, row[1], decode, sample, fails, flight);
      sampled += sample;
    }
    EXPECT(ids_used == plan_.ids_len && sampled == plan_.sample_rows,
           "the plan's counts are wrong");
    EXPECT(prefilled <= (decodes ? config_.step_tokens_mixed : config_.step_tokens),
           "over the step's budget");
    flight.rows.back().failed = row_fails && !fails && flight.rows.back().ids_max > 0;
    flights_.push_back(std::move(flight));
    return true;
  }

  // Tells the result (or the failure) of the oldest step in flight.
  void result() {
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    if (flight.fails) return failed(flight);
    std::vector<int32_t> counts, ids;
    std::vector<ts_outcome> expected;
    for (const Row &row : flight.rows) {
      if (row.ids_max == 0) continue;
      counts.push_back(row.failed ? -1 : static_cast<int32_t>(row.ids.size()));
      if (Entry &entry = book_[row.request]; entry.live)
        expected.push_back(accept(row, entry, static_cast<int32_t>(ids.size())));
      if (row.failed) continue;
      ids.insert(ids.end(), row.ids.begin(), row.ids.end());
    }
    outcomes_.resize(counts.size());
    refuse_wrong(flight, counts, ids);
    const int32_t live =
        ts_scheduler_result(core_, now_us, flight.step, 1000, counts.data(), size(counts),
                            ids.data(), size(ids), outcomes_.data(), size(outcomes_));
    EXPECT(live == size(expected), "result gave " + text(live) + " outcomes, expected " +
                                       text(size(expected)) + ": " + ts_last_error());
    for (size_t i = 0; i < expected.size(); ++i) {
      const ts_outcome &a = outcomes_[i], &b = expected[i];
      EXPECT(a.request == b.request && a.first == b.first && a.offset == b.offset &&
                 a.count == b.count && a.finish == b.finish,
             "an outcome of request " + text(static_cast<int64_t>(b.request)) + " is wrong");
      Entry &entry = book_[b.request];
      entry.live = b.finish == 0;
    }
  }

  void executor_lost() {
    EXPECT(ts_scheduler_executor_lost(core_, now_us) == TS_OK, "executor_lost failed");
    for (const Flight &flight : flights_) {
      std::vector<int32_t> none;
      EXPECT(ts_scheduler_result(core_, now_us, flight.step, 0, none.data(), 0, none.data(), 0,
                                 nullptr, 0) == TS_ERR_UNKNOWN,
             "a void step's result was taken");
    }
    flights_.clear();
    for (auto &page : content_) std::fill(page.begin(), page.end(), 0);
    for (Slot &slot : slots_) slot = {};
    for (auto &[id, entry] : book_) entry.in_flight_max = 0;
    ts_scheduler_stats_t stats;
    ts_scheduler_stats(core_, &stats);
    for (int32_t g = 0; g < config_.groups; ++g)
      EXPECT(stats.pages_free[g] == stats.pages_total[g], "pages survived the executor");
    EXPECT(stats.slots_free == config_.slots, "slots survived the executor");
  }

  // As after a change of weights: nothing computed before may be found afterwards.
  void flush() {
    EXPECT(ts_scheduler_flush(core_, now_us) >= 0, "flush failed");
    ++weights_;
  }

  // Answers everything until all requests are over; the core must never be at a loss.
  void drain() {
    for (int64_t steps = 0;; ++steps) {
      now_us += 1000;
      EXPECT(steps < 200'000, "no end: livelock");
      if (plan(false)) continue;
      if (!flights_.empty()) {
        result();
        continue;
      }
      EXPECT(live() == 0,
             "nothing to do, yet " + text(live()) + " requests are open: " + situation());
      break;
    }
    audit();
    ts_scheduler_stats_t stats;
    ts_scheduler_stats(core_, &stats);
    for (int32_t g = 0; g < config_.groups; ++g) {
      EXPECT(stats.pages_free[g] + stats.pages_cached_idle[g] == stats.pages_total[g],
             "pages are left over");
    }
    EXPECT(stats.slots_free == config_.slots, "slots are left over");
  }

  // Feeds the log of everything so far to another scheduler; each answer must be the same.
  void replay() {
    std::vector<uint8_t> log, part(1 << 16);
    while (const int64_t size =
               ts_scheduler_log(core_, part.data(), static_cast<int64_t>(part.size()))) {
      EXPECT(size > 0, "no log");
      log.insert(log.end(), part.begin(), part.begin() + size);
    }
    ts_scheduler *again = nullptr;
    const int32_t status =
        ts_scheduler_replay(log.data(), static_cast<int64_t>(log.size()), &again);
    EXPECT(status == TS_OK, ts_last_error());
    ts_scheduler_destroy(again);
  }

 private:
  template <class T>
  static int32_t size(const std::vector<T> &list) {
    return static_cast<int32_t>(list.size());
  }
  int32_t pages_for(int32_t tokens) const {
    return (tokens + config_.page_tokens - 1) / config_.page_tokens;
  }
  bool is_live(uint64_t id) const {
    const auto found = book_.find(id);
    return found != book_.end() && found->second.live;
  }
  // A step in flight has a row of that request.
  bool named(uint64_t id) const {
    for (const Flight &flight : flights_) {
      for (const Row &row : flight.rows) {
        if (row.request == id) return true;
      }
    }
    return false;
  }

  // Rows of that request are to be scored.
  bool scores(uint64_t id) const {
    const Entry &entry = book_.at(id);
    return entry.score && entry.outputs() == 0;
  }

  uint64_t oldest_running() {
    uint64_t oldest = 0;
    for (const auto &[id, entry] : book_) {
      if (!entry.live) continue;
      const int32_t state = ts_scheduler_state(core_, id);
      if (state < 1 || state > 3) continue;
      if (oldest == 0 || entry.arrival < book_[oldest].arrival) oldest = id;
    }
    return oldest;
  }

  void open_slots() {
    for (int32_t i = 0; i < plan_.openings_len; ++i) {
      const ts_opening &opening = openings_[static_cast<size_t>(i)];
      EXPECT(opening.slot >= 1 && opening.slot <= config_.slots,
             "an opening names slot " + text(opening.slot));
      EXPECT(is_live(opening.request), "an opening for a request that is over");
      for (const Flight &flight : flights_)
        EXPECT(!flight.slots.contains(opening.slot), "a slot was given away while a step names it");
      Slot &slot = slots_[static_cast<size_t>(opening.slot)];
      const bool holds = slot.request != 0 && is_live(slot.request) &&
                         ts_scheduler_state(core_, slot.request) >= 1 &&
                         ts_scheduler_state(core_, slot.request) <= 3 &&
                         slot_of(slot.request) == opening.slot;
      const bool moves =
          std::any_of(openings_.begin(), openings_.begin() + plan_.openings_len,
                      [&](const ts_opening &other) { return other.request == slot.request; });
      EXPECT(!holds || moves, "a slot was given away under its request");
      for (Slot &other : slots_) {
        if (other.request == opening.request) other = {};
      }
      const Entry &entry = book_[opening.request];
      slot = {.request = opening.request,
              .table = {},
              .tokens = entry.tokens,
              .length = -1,
              .root = extend(extend(weights_, 1), static_cast<int32_t>(entry.space)),
              .doomed = false};
    }
  }

  // The configuration, the ledgers and the open requests, for the text of a failure.
  std::string situation() {
    ts_scheduler_stats_t stats;
    ts_scheduler_stats(core_, &stats);
    std::string all = "page_tokens " + text(config_.page_tokens) + " slots " + text(config_.slots) +
                      " step " + text(config_.step_tokens) + "/" + text(config_.step_tokens_mixed) +
                      " overlap " + text(config_.overlap) + " width " + text(config_.width);
    for (int32_t g = 0; g < config_.groups; ++g) {
      all += "; group " + text(g) + " window " + text(config_.windows[g]) + " total " +
             text(stats.pages_total[g]) + " free " + text(stats.pages_free[g]) + " owned " +
             text(stats.pages_owned[g]) + " idle " + text(stats.pages_cached_idle[g]) + " leased " +
             text(stats.pages_cached_leased[g]) + " zombie " + text(stats.pages_zombie[g]);
    }
    for (const auto &[id, entry] : book_) {
      if (!entry.live) continue;
      all += "\n  request " + text(static_cast<int64_t>(id)) + " " +
             ts_state_name(ts_scheduler_state(core_, id)) + " prompt " + text(entry.prompt) +
             " outputs " + text(entry.outputs()) + " of " + text(entry.max_tokens) + " in flight " +
             text(entry.in_flight_max);
    }
    return all;
  }

  int32_t slot_of(uint64_t request) const {
    for (size_t i = 1; i < slots_.size(); ++i) {
      if (slots_[i].request == request) return static_cast<int32_t>(i);
    }
    return 0;
  }

  void list_pages() {
    for (int32_t i = 0; i < plan_.pages_len; ++i) {
      const int32_t *entry = pages_.data() + static_cast<ptrdiff_t>(i) * 4;
      const int32_t slot = entry[0], group = entry[1], index = entry[2], page = entry[3];
      EXPECT(
          slot >= 1 && slot <= config_.slots && group >= 0 && group < config_.groups && index >= 0,
          "a page entry is out of range");
      EXPECT(page >= 1 && page < config_.pages_total[group],
             "a page entry names page " + text(page));
      slots_[static_cast<size_t>(slot)].table[{group, index}] = page;
    }
  }

  void decode_row(const Slot &slot, int32_t tokens, int32_t context, bool sample) {
    Entry &entry = book_[slot.request];
    EXPECT(sample, "a decode row is not sampled");
    EXPECT(tokens <= config_.width, "a decode row is too wide");
    EXPECT(context == static_cast<int32_t>(entry.tokens.size()) - 1 + entry.in_flight_max,
           "a decode row's context is wrong");
    EXPECT(entry.outputs() + entry.in_flight_max + tokens <= entry.max_tokens,
           "a row past the limit");
    EXPECT(context >= slot.length, "a decode row's context is below the true one");
  }

  void prefill_row(Slot &slot, int32_t tokens, int32_t context, bool sample, const int32_t *ids) {
    Entry &entry = book_[slot.request];
    const int32_t known = static_cast<int32_t>(entry.tokens.size());
    if (slot.length < 0) {
      EXPECT(context % config_.page_tokens == 0, "a hit is not whole pages");
      EXPECT(context == 0 || !scores(slot.request), "tokens to be scored came from the cache");
      slot.length = context;
      if (!entry.opened)
        EXPECT(ts_scheduler_cached_tokens(core_, slot.request) == context,
               "cached_tokens is wrong");
      entry.opened = true;
    }
    EXPECT(context == slot.length, "a chunk does not begin where the last one ended");
    EXPECT(context + tokens <= known, "a chunk beyond what is known");
    EXPECT(sample == (context + tokens == known), "the sample flag is wrong");
    EXPECT(entry.in_flight_max == 0, "a chunk while output is in flight");
    EXPECT(std::equal(ids, ids + tokens, entry.tokens.begin() + context),
           "a chunk has the wrong ids");
  }

  Tag tag_at(const Slot &slot, int32_t position) const {
    Tag tag = slot.root;
    for (int32_t i = 0; i <= position; ++i) tag = extend(tag, slot.tokens[static_cast<size_t>(i)]);
    return tag;
  }

  Tag &cell(const Slot &slot, int32_t group, int32_t position) {
    const auto page = slot.table.find({group, position / config_.page_tokens});
    EXPECT(page != slot.table.end(), "request " + text(static_cast<int64_t>(slot.request)) +
                                         " has no page for position " + text(position) +
                                         " of group " + text(group));
    return content_[static_cast<size_t>(group)][static_cast<size_t>(
        page->second * config_.page_tokens + position % config_.page_tokens)];
  }

  // Pages that the row reads and writes: free of other requests' work, and nobody else's table.
  void touch(int32_t number, const Slot &slot, int32_t tokens, bool decode, Flight &flight,
             std::map<std::pair<int32_t, int32_t>, uint64_t> &written) {
    flight.slots.insert(number);
    const Entry &entry = book_[slot.request];
    // Upper bound of what it may write, as the plan sees it.
    const int32_t begin = slot.length;
    const int32_t end =
        decode ? static_cast<int32_t>(entry.tokens.size()) - 1 + entry.in_flight_max + tokens
               : begin + tokens;
    for (int32_t g = 0; g < config_.groups; ++g) {
      const int32_t window = config_.windows[g];
      const int32_t first =
          window == 0 || begin <= window ? 0 : (begin - window) / config_.page_tokens;
      for (int32_t i = first; i < pages_for(end); ++i) {
        const auto found = slot.table.find({g, i});
        EXPECT(found != slot.table.end(), "request " + text(static_cast<int64_t>(slot.request)) +
                                              " lacks page " + text(i) + " of group " + text(g));
        const std::pair<int32_t, int32_t> page{g, found->second};
        flight.pages.insert(page);
        if (i < begin / config_.page_tokens) continue;
        EXPECT(written.try_emplace(page, slot.request).second, "two requests write one page");
        for (const Slot &other : slots_) {
          if (other.request == 0 || other.request == slot.request || !is_live(other.request))
            continue;
          const int32_t state = ts_scheduler_state(core_, other.request);
          if (state < 1 || state > 3) continue;
          const int32_t from = window == 0 || other.length <= window
                                   ? 0
                                   : (other.length - window) / config_.page_tokens;
          for (const auto &[key, value] : other.table) {
            EXPECT(key.first != g || value != page.second || key.second < from,
                   "a page that another request reads is written");
          }
        }
        for (const Flight &other : flights_) {
          if (!other.pages.contains(page)) continue;
          const bool own = std::any_of(other.rows.begin(), other.rows.end(),
                                       [&](const Row &row) { return row.request == slot.request; });
          EXPECT(own, "a page that a step in flight names was given away");
        }
      }
    }
  }

  // Reads the whole prefix, writes the row's KV, draws its ids.
  void compute(Slot &slot, int32_t tokens, bool decode, bool sample, bool fails, Flight &flight) {
    Entry &entry = book_[slot.request];
    slot.doomed |= fails;
    Row row{slot.request, sample ? (decode ? tokens : 1) : 0, {}, false};
    if (!slot.doomed) read(slot);
    const int32_t begin = slot.length;
    int32_t accepted = tokens;
    if (decode) {
      accepted = 1 + static_cast<int32_t>(tag_at(slot, begin) / 7 % static_cast<uint64_t>(tokens));
    }
    for (int32_t i = 0; i < tokens; ++i) {
      const bool good = !fails && i < accepted;
      const bool draws = sample && (decode ? i < accepted : i == tokens - 1);
      for (int32_t g = 0; g < config_.groups; ++g)
        cell(slot, g, begin + i) = good ? tag_at(slot, begin + i) : 0;
      if (!draws) continue;
      const int32_t id =
          static_cast<int32_t>(tag_at(slot, begin + i) / 11 % static_cast<uint64_t>(vocabulary_));
      slot.tokens.push_back(id);
      row.ids.push_back(id);
    }
    slot.length += accepted;
    entry.in_flight_max += row.ids_max;
    flight.rows.push_back(std::move(row));
  }

  void read(const Slot &slot) {
    for (int32_t g = 0; g < config_.groups; ++g) {
      const int32_t window = config_.windows[g];
      Tag tag = slot.root;
      for (int32_t i = 0; i < slot.length; ++i) {
        tag = extend(tag, slot.tokens[static_cast<size_t>(i)]);
        if (window != 0 && i < slot.length - window) continue;
        EXPECT(cell(slot, g, i) == tag, "request " + text(static_cast<int64_t>(slot.request)) +
                                            " reads at position " + text(i) + " of group " +
                                            text(g) + " what is not its prefix");
      }
    }
  }

  ts_outcome accept(const Row &row, Entry &entry, int32_t offset) {
    ts_outcome outcome{row.request, entry.outputs(), offset, 0, 0};
    entry.in_flight_max -= row.ids_max;
    if (row.failed || entry.max_tokens == 0) {
      outcome.finish = row.failed ? 3 : 2;
      return outcome;
    }
    for (const int32_t id : row.ids) {
      entry.tokens.push_back(id);
      ++outcome.count;
      if (std::find(entry.end_ids.begin(), entry.end_ids.end(), id) != entry.end_ids.end()) {
        outcome.finish = 1;
        break;
      }
      if (entry.outputs() == entry.max_tokens) {
        outcome.finish = 2;
        break;
      }
    }
    return outcome;
  }

  // Wrong results are refused and change nothing.
  void refuse_wrong(const Flight &flight, std::vector<int32_t> counts, std::vector<int32_t> ids) {
    const auto give = [&](uint64_t step) {
      return ts_scheduler_result(core_, now_us, step, 0, counts.data(), size(counts), ids.data(),
                                 size(ids), outcomes_.data(), size(outcomes_));
    };
    EXPECT(give(flight.step + 1000) == TS_ERR_UNKNOWN, "an unknown step was taken");
    if (!flights_.empty())
      EXPECT(give(flights_.back().step) == TS_ERR_ILLEGAL || counts.empty(),
             "a step was taken out of order");
    if (counts.empty()) return;
    counts[0] += 100;
    EXPECT(give(flight.step) == TS_ERR_ARGUMENT, "a wrong count was taken");
    counts[0] -= 100;
    ids.push_back(0);
    EXPECT(give(flight.step) == TS_ERR_ARGUMENT, "an id too many was taken");
  }

  void failed(const Flight &flight) {
    std::vector<uint64_t> expected, ended(flight.rows.size());
    for (const Row &row : flight.rows) {
      Entry &entry = book_[row.request];
      entry.in_flight_max -= row.ids_max;
      if (entry.live) expected.push_back(row.request);
      entry.live = false;
    }
    const int32_t count =
        ts_scheduler_step_failed(core_, now_us, flight.step, ended.data(), size(ended));
    EXPECT(count == size(expected),
           "step_failed ended " + text(count) + " requests, expected " + text(size(expected)));
    ended.resize(expected.size());
    EXPECT(ended == expected, "step_failed ended other requests");
  }

  const ts_scheduler_config config_;
  const int32_t vocabulary_;
  ts_scheduler *core_ = nullptr;
  ts_plan plan_{};
  std::vector<ts_opening> openings_;
  std::vector<int32_t> rows_, ids_, pages_;
  std::vector<ts_outcome> outcomes_;
  std::vector<std::vector<Tag>> content_;
  std::vector<Slot> slots_;
  std::map<uint64_t, Entry> book_;
  std::deque<Flight> flights_;
  std::set<uint64_t> tombstones_;
  uint64_t arrivals_ = 0;
  Tag weights_ = 1;
};

}  // namespace device
