// The parts of the scheduler one by one. Plans as a whole are judged by the fuzzer and by the
// transcripts in tests/scheduling.

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "check.h"
#include "scheduler/claims.h"
#include "scheduler/fair_queue.h"
#include "scheduler/memory.h"
#include "scheduler/states.h"
#include "scheduler/tombstones.h"
#include "tokenspeed.h"

using ts::Event;
using ts::Kind;
using ts::PageClass;

namespace {

ts::Config config_of(int32_t pages, int32_t window = 0) {
  ts::Config config{};
  config.page_tokens = 2;
  config.groups = window > 0 ? 2 : 1;
  config.pages_total[0] = config.pages_total[1] = pages + 1;
  config.windows[1] = window;
  config.slots = 4;
  config.step_tokens = config.step_tokens_mixed = 8;
  config.max_model_len = 64;
  config.overlap = 1;
  config.width = 1;
  config.prefix_caching = 1;
  return config;
}

ts::Sequence sequence_of(std::vector<int32_t> tokens, uint64_t space = 0) {
  return ts::Sequence(2, {space, 0}, tokens, {}, 8);
}

// A residency that has computed the whole of `sequence`, published.
ts::Residency computed(ts::Memory &memory, ts::Sequence &sequence) {
  ts::Residency residency(memory, memory.index().match(sequence, sequence.known() / 2));
  residency.cover(sequence.known());
  residency.publish(sequence, sequence.known());
  return residency;
}

int32_t count(const ts::Memory &memory, PageClass page_class, int32_t group = 0) {
  return memory.pages(group).count(page_class);
}

ts::State state_of(Kind kind, ts::Memory &memory) {
  switch (kind) {
    case Kind::kPrefilling:
      return ts::Prefilling{ts::Residency(memory, {})};
    case Kind::kPrefillDone:
      return ts::PrefillDone{ts::Residency(memory, {})};
    case Kind::kDecoding:
      return ts::Decoding{ts::Residency(memory, {})};
    case Kind::kSubmitted:
      return ts::Submitted{};
    case Kind::kRetracted:
      return ts::Retracted{};
    case Kind::kAborting:
      return ts::Aborting{};
    case Kind::kFinished:
      return ts::Finished{};
  }
  return ts::Finished{};
}

ts::Request request_of(uint64_t id, int32_t tokens, int32_t priority = 0) {
  return ts::Request{.id = id,
                     .arrival = id,
                     .submitted_us = 0,
                     .session_id = 0,
                     .priority = priority,
                     .max_tokens = 8,
                     .end_ids = {},
                     .sequence = sequence_of(std::vector<int32_t>(static_cast<size_t>(tokens), 1))};
}

}  // namespace

// ---- states

TEST(every_state_and_event) {
  for (int32_t s = 0; s < ts::kStates; ++s) {
    for (int32_t e = 0; e < ts::kEvents; ++e) {
      ts::Memory memory(config_of(4));
      const auto from = static_cast<Kind>(s);
      const auto event = static_cast<Event>(e);
      {
        ts::State state = state_of(from, memory);
        std::optional<ts::Residency> held;
        if (event == Event::kAdmit && !ts::holds_residency(from))
          held.emplace(memory, std::vector<ts::Node *>{});
        const int32_t slots = memory.slots().free();
        const bool moved = ts::transition(state, event, held);
        const int8_t next = ts::next_state(from, event);
        CHECK_EQ(moved, next >= 0);
        CHECK_EQ(static_cast<int32_t>(ts::kind(state)), next >= 0 ? next : s);
        // What the next state does not own is in the caller's hands; nothing was dropped.
        CHECK_EQ(memory.slots().free(), slots);
        CHECK_EQ(ts::residency_of(state) != nullptr, ts::holds_residency(ts::kind(state)));
        const int32_t in_use =
            static_cast<int32_t>(held.has_value()) + (ts::residency_of(state) != nullptr);
        CHECK_EQ(memory.slots().total() - 1 - memory.slots().free(), in_use);
        CHECK_EQ(ts_state_next(s, e), next >= 0 ? next : static_cast<int32_t>(TS_ERR_ILLEGAL));
      }
      CHECK_EQ(memory.slots().free(), 4);  // and dropping both gives everything back
      CHECK_EQ(memory.slots().audit(), "");
    }
  }
}

TEST(admission_needs_a_residency) {
  ts::State state = ts::Submitted{};
  std::optional<ts::Residency> none;
  CHECK(!ts::transition(state, Event::kAdmit, none));
  CHECK(ts::kind(state) == Kind::kSubmitted);
}

TEST(names_of_states_and_events) {
  CHECK_EQ(ts_state_count(), 7);
  CHECK_EQ(ts_event_count(), 12);
  CHECK_EQ(std::string(ts_state_name(2)), "PrefillDone");
  CHECK_EQ(std::string(ts_event_name(11)), "Drained");
  CHECK_EQ(std::string(ts_state_name(7)), "");
  CHECK_EQ(ts_state_next(7, 0), TS_ERR_ARGUMENT);
}

// ---- ledgers

TEST(a_page_freed_twice_is_a_fault_and_changes_nothing) {
  ts::Ledger ledger("page", 3);
  const int32_t page = ledger.take();
  ledger.move(page, PageClass::kOwned, PageClass::kFree);
  CHECK_EQ(ledger.audit(), "");
  ledger.move(page, PageClass::kOwned, PageClass::kFree);
  CHECK_EQ(ledger.audit(), "page 1 was to go from owned to free but is free");
  CHECK_EQ(ledger.free(), 2);
}

TEST(a_ledger_gives_each_page_once_and_never_page_0) {
  ts::Ledger ledger("page", 4);
  CHECK_EQ(ledger.take(), 1);
  CHECK_EQ(ledger.take(), 2);
  CHECK_EQ(ledger.take(), 3);
  CHECK_EQ(ledger.take(), 0);
  CHECK_EQ(ledger.count(PageClass::kOwned), 3);
}

// ---- prefix index

TEST(a_published_prefix_is_found) {
  ts::Memory memory(config_of(8));
  ts::Sequence sequence = sequence_of({1, 2, 3, 4, 5, 6});
  const ts::Residency residency = computed(memory, sequence);
  CHECK_EQ(count(memory, PageClass::kCachedLeased), 3);
  ts::Sequence longer = sequence_of({1, 2, 3, 4, 9, 9, 9});
  CHECK_EQ(memory.index().match(longer, 3).size(), 2U);
  CHECK_EQ(memory.index().match(longer, 1).size(), 1U);
  ts::Sequence other = sequence_of({1, 2, 3, 4}, 5);
  CHECK_EQ(memory.index().match(other, 2).size(), 0U);
}

TEST(equal_hashes_are_not_enough) {
  ts::weak_hash = true;
  ts::Memory memory(config_of(64));
  std::vector<ts::Residency> held;
  for (int32_t i = 0; i < 4; ++i) {
    ts::Sequence sequence = sequence_of({i, i, i + 1, i});
    held.push_back(computed(memory, sequence));
  }
  for (int32_t i = 0; i < 16; ++i) {  // two bits of hash: nearly all collide
    ts::Sequence sequence = sequence_of({i, i, i + 1, i});
    CHECK_EQ(memory.index().match(sequence, 2).size(), i < 4 ? 2U : 0U);
    ts::Sequence crossed = sequence_of({i, i, i + 2, i});
    CHECK_EQ(memory.index().match(crossed, 2).size(), i < 4 ? 1U : 0U);
  }
  ts::weak_hash = false;
}

TEST(eviction_takes_leaves_first_and_the_longest_unused) {
  ts::Memory memory(config_of(6));
  ts::Sequence old = sequence_of({1, 1, 2, 2, 3, 3});
  ts::Sequence young = sequence_of({1, 1, 7, 7});
  {
    const ts::Residency residency = computed(memory, old);
  }
  {
    const ts::Residency residency = computed(memory, young);
  }
  CHECK_EQ(count(memory, PageClass::kCachedIdle), 4);
  const std::array<size_t, 4> left_of_old = {2, 1, 1, 0}, left_of_young = {2, 2, 1, 0};
  for (size_t i = 0; i < 4; ++i) {
    CHECK(memory.index().evict(0));
    CHECK_EQ(memory.index().match(old, 3).size(), left_of_old[i]);
    CHECK_EQ(memory.index().match(young, 2).size(), left_of_young[i]);
    CHECK_EQ(memory.index().audit(), "");
  }
  CHECK(!memory.index().evict(0));
  CHECK_EQ(memory.pages(0).free(), 6);
}

TEST(leased_pages_are_not_evicted) {
  ts::Memory memory(config_of(3));
  ts::Sequence sequence = sequence_of({1, 1, 2, 2, 3, 3});
  const ts::Residency residency = computed(memory, sequence);
  CHECK(!memory.index().evict(0));
  CHECK_EQ(memory.allocate(0), 0);
}

TEST(a_duplicate_takes_the_place_of_the_copy_it_doubles) {
  ts::Memory memory(config_of(8));
  ts::Sequence sequence = sequence_of({1, 1, 2, 2});
  std::optional<ts::Residency> first = computed(memory, sequence);
  std::optional<ts::Residency> second(std::in_place, memory, std::vector<ts::Node *>{});
  second->cover(4);
  CHECK_EQ(second->publish(sequence, 4), 2);
  CHECK_EQ(count(memory, PageClass::kOwned), 2);
  const int32_t kept = second->table(0).pages[1];
  first.reset();
  CHECK_EQ(count(memory, PageClass::kOwned), 0);
  CHECK_EQ(count(memory, PageClass::kCachedLeased), 2);
  CHECK_EQ(memory.pages(0).free(), 6);
  CHECK_EQ(memory.index().match(sequence, 2)[1]->copies[0].page, kept);
  CHECK_EQ(memory.index().audit(), "");
  second.reset();
  CHECK_EQ(count(memory, PageClass::kCachedIdle), 2);
}

TEST(flush_frees_what_is_idle_and_hides_what_is_leased) {
  ts::Memory memory(config_of(8));
  ts::Sequence idle = sequence_of({1, 1, 2, 2}), leased = sequence_of({1, 1, 3, 3});
  {
    const ts::Residency residency = computed(memory, idle);
  }
  {
    const ts::Residency residency = computed(memory, leased);
    CHECK_EQ(memory.index().flush(), 1);
    CHECK_EQ(memory.index().match(leased, 2).size(), 0U);
    CHECK_EQ(count(memory, PageClass::kCachedLeased), 2);
    CHECK_EQ(memory.index().audit(), "");
  }
  CHECK_EQ(memory.pages(0).free(), 8);
  CHECK_EQ(memory.index().nodes(), 0);
}

TEST(a_window_gives_pages_back_and_limits_hits) {
  ts::Memory memory(config_of(8, 4));
  ts::Sequence sequence = sequence_of({1, 1, 2, 2, 3, 3, 4, 4});
  {
    ts::Residency residency = computed(memory, sequence);
    residency.slide(8);
    CHECK_EQ(residency.table(1).first, 2);
    CHECK_EQ(count(memory, PageClass::kCachedIdle, 1), 2);
    CHECK_EQ(count(memory, PageClass::kCachedLeased, 0), 4);
  }
  CHECK_EQ(memory.index().match(sequence, 4).size(), 4U);
  CHECK(memory.index().evict(1));  // page 0 of the window group: outside of every longer window
  CHECK(memory.index().evict(1));
  CHECK_EQ(memory.index().match(sequence, 4).size(), 4U);
  CHECK_EQ(memory.index().match(sequence, 3).size(), 0U);  // would need page 1
  CHECK_EQ(memory.index().audit(), "");
}

TEST(slots_and_pages_stay_zombies_until_the_last_ticket) {
  ts::Memory memory(config_of(8));
  ts::Sequence sequence = sequence_of({1, 1, 2});
  {
    ts::Residency residency(memory, {});
    residency.cover(3);
    residency.publish(sequence, 2);
    residency.retire();
    CHECK_EQ(count(memory, PageClass::kZombie), 1);
    CHECK_EQ(count(memory, PageClass::kCachedLeased), 1);
    CHECK_EQ(memory.slots().count(PageClass::kZombie), 1);
  }
  CHECK_EQ(count(memory, PageClass::kZombie), 0);
  CHECK_EQ(memory.slots().free(), 4);
}

// ---- small parts

TEST(a_hash_depends_on_tokens_order_and_parent) {
  const std::array<int32_t, 3> ab = {1, 2, 3}, ba = {2, 1, 3};
  const ts::Hash root{}, other{1, 0};
  CHECK(ts::hash_page(root, ab.data(), 3) == ts::hash_page(root, ab.data(), 3));
  CHECK(!(ts::hash_page(root, ab.data(), 3) == ts::hash_page(root, ba.data(), 3)));
  CHECK(!(ts::hash_page(root, ab.data(), 3) == ts::hash_page(root, ab.data(), 2)));
  CHECK(!(ts::hash_page(root, ab.data(), 3) == ts::hash_page(other, ab.data(), 3)));
}

TEST(claims_go_with_their_owner) {
  ts::Request first = request_of(1, 6), second = request_of(2, 6);
  ts::Claims claims;
  claims.claim(first, 0, 3);
  claims.claim(second, 1, 3);
  CHECK(claims.owner(first.sequence.hash(1)) == &first);
  claims.settle(first, 1);
  CHECK(claims.owner(first.sequence.hash(0)) == nullptr);
  claims.drop(second);
  CHECK(claims.blocks(second, first.sequence.hash(2)));
  CHECK(!claims.blocks(request_of(3, 6, 1), first.sequence.hash(2)));  // goes before the owner
  claims.drop(first);
  CHECK_EQ(claims.size(), 0U);
}

TEST(tombstones_are_bounded_and_the_oldest_goes) {
  ts::Tombstones tombstones;
  for (uint64_t id = 0; id <= ts::Tombstones::kMax; ++id) tombstones.add(id);
  CHECK_EQ(tombstones.size(), static_cast<int32_t>(ts::Tombstones::kMax));
  CHECK(!tombstones.contains(0));
  CHECK(tombstones.remove(1));
  CHECK(!tombstones.remove(1));
}

TEST(the_shortest_goes_first_until_its_session_owes) {
  ts::FairQueue queue(100);
  ts::Request busy_a = request_of(1, 10), busy_b = request_of(2, 20), quiet = request_of(3, 60);
  for (ts::Request *request : {&busy_a, &busy_b, &quiet}) {
    queue.enter(*request, request == &quiet ? 8 : 7);
    queue.wait(*request);
  }
  const auto all = [](const ts::Request &) { return true; };
  CHECK_EQ(queue.next(0, {}, true, all)->id, 1U);
  queue.charge(busy_a, 100);  // its session is in debt now
  CHECK_EQ(queue.next(0, {}, true, all)->id, 3U);
  queue.charge(quiet, 100);  // all owe: a new round
  CHECK_EQ(queue.next(0, {}, true, all)->id, 1U);
  CHECK(queue.next(0, {}, false, all) == nullptr);
  CHECK_EQ(queue.audit(), "");
  for (ts::Request *request : {&busy_a, &busy_b, &quiet}) {
    queue.stop_waiting(*request);
    queue.leave(*request);
  }
  CHECK_EQ(queue.waiting(), 0);
}

TEST(waiting_and_priority_count) {
  ts::FairQueue queue(100);
  ts::Request old = request_of(1, 60), fresh = request_of(2, 10), urgent = request_of(3, 64, 1);
  fresh.submitted_us = urgent.submitted_us = 20'000;
  uint64_t session = 0;
  for (ts::Request *request : {&old, &fresh, &urgent}) {
    queue.enter(*request, ++session);
    queue.wait(*request);
  }
  const auto all = [](const ts::Request &) { return true; };
  CHECK_EQ(queue.next(20'000, {}, true, all)->id, 3U);
  const auto not_urgent = [](const ts::Request &request) { return request.id != 3; };
  CHECK_EQ(queue.next(20'000, {}, true, not_urgent)->id, 1U);  // 20 ms made it 80 tokens shorter
}

// ---- C ABI

TEST(the_border_refuses_what_is_wrong) {
  ts_scheduler *scheduler = nullptr;
  ts::Config config = config_of(8);
  CHECK_EQ(ts_scheduler_create(nullptr, &scheduler), TS_ERR_ARGUMENT);
  config.overlap = 2;
  CHECK_EQ(ts_scheduler_create(&config, &scheduler), TS_ERR_ARGUMENT);
  CHECK_EQ(std::string(ts_last_error()),
           "The scheduler's configuration is wrong: overlap is 2; allowed are 0 to 1");
  config.overlap = 1;
  CHECK_EQ(ts_scheduler_create(&config, &scheduler), TS_OK);
  ts_plan plan{};
  CHECK_EQ(ts_scheduler_plan(scheduler, 0, &plan), TS_ERR_ARGUMENT);
  ts_opening opening{};
  int32_t ints[4] = {};
  plan.openings = &opening;
  plan.rows = plan.ids = plan.pages = ints;
  CHECK_EQ(ts_scheduler_plan(scheduler, 0, &plan), TS_ERR_CAPACITY);
  ts_submission submission{};
  CHECK_EQ(ts_scheduler_submit(scheduler, 0, &submission), TS_ERR_ARGUMENT);
  submission.prompt = ints;
  submission.prompt_len = 4;
  submission.max_tokens = -1;
  CHECK_EQ(ts_scheduler_submit(scheduler, 0, &submission), TS_ERR_ARGUMENT);
  submission.max_tokens = 100;
  CHECK_EQ(ts_scheduler_submit(scheduler, 0, &submission), TS_ERR_NEVER_FITS);
  CHECK_EQ(ts_scheduler_result(scheduler, 0, 1, 0, nullptr, 0, nullptr, 0, nullptr, 0),
           TS_ERR_UNKNOWN);
  CHECK_EQ(ts_scheduler_step_failed(scheduler, 0, 1, nullptr, 0), TS_ERR_UNKNOWN);
  CHECK_EQ(ts_scheduler_cached_tokens(scheduler, 9), TS_ERR_UNKNOWN);
  CHECK_EQ(ts_scheduler_state(scheduler, 9), TS_ERR_UNKNOWN);
  ts_scheduler_destroy(scheduler);
}

CHECK_MAIN()
