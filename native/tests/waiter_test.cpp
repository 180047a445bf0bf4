// The waiter before a driver that obeys the test. FAKE and FAKE_WITHOUT_EVENTS are its paths.

#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "check.h"
#include "tokenspeed.h"

namespace {

constexpr int32_t kLimitMs = 10'000;

template <typename Function>
Function fake(const char *name) {
  static void *const library = dlopen(FAKE, RTLD_NOW | RTLD_LOCAL);
  CHECK(library != nullptr);
  return reinterpret_cast<Function>(dlsym(library, name));
}

void complete(uint64_t event, int result = 0) {
  fake<void (*)(uint64_t, int)>("fake_complete")(event, result);
}

void until_waiting() { fake<void (*)()>("fake_until_waiting")(); }

int contexts() { return fake<int (*)()>("fake_contexts")(); }

// Events of one test are not those of another: the driver is one for all.
uint64_t fresh_event() {
  static uint64_t last = 1000;
  return ++last;
}

ts_waiter *make(const char *library = FAKE, int32_t device = 0) {
  ts_waiter *waiter = nullptr;
  CHECK_EQ(ts_waiter_create(library, device, &waiter), TS_OK);
  return waiter;
}

bool readable(ts_waiter *waiter, int timeout_ms = 0) {
  pollfd watched = {ts_waiter_fd(waiter), POLLIN, 0};
  return poll(&watched, 1, timeout_ms) == 1;
}

ts_waiter_done next(ts_waiter *waiter) {
  ts_waiter_done done = {};
  CHECK(readable(waiter, kLimitMs));
  CHECK_EQ(ts_waiter_next(waiter, &done), 1);
  return done;
}

void check_none(ts_waiter *waiter) {
  ts_waiter_done done;
  CHECK(!readable(waiter));
  CHECK_EQ(ts_waiter_next(waiter, &done), 0);
}

void destroy(ts_waiter *waiter) {
  CHECK_EQ(ts_waiter_destroy(waiter, kLimitMs), 1);
  CHECK_EQ(contexts(), 0);
}

void check_refused(int32_t status, const std::string &words) {
  CHECK_EQ(status, TS_ERR_ARGUMENT);
  const std::string text = ts_last_error();
  if (text.find(words) == std::string::npos) CHECK_EQ(text, words);
  CHECK_EQ(contexts(), 0);
}

int64_t now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

}  // namespace

TEST(an_event_that_comes_makes_the_eventfd_readable_and_is_told_once) {
  ts_waiter *waiter = make();
  CHECK_EQ(contexts(), 1);
  const uint64_t event = fresh_event();
  CHECK_EQ(ts_waiter_wait(waiter, event, 42), TS_OK);
  until_waiting();
  check_none(waiter);
  const int64_t before_us = now_us();
  complete(event);
  const ts_waiter_done done = next(waiter);
  CHECK_EQ(done.token, 42U);
  CHECK_EQ(done.status, 0);
  CHECK(before_us <= done.done_us && done.done_us <= now_us());
  check_none(waiter);
  destroy(waiter);
}

TEST(events_are_told_in_the_order_of_the_waits) {
  ts_waiter *waiter = make();
  const uint64_t first = fresh_event(), second = fresh_event(), third = fresh_event();
  CHECK_EQ(ts_waiter_wait(waiter, first, 1), TS_OK);
  CHECK_EQ(ts_waiter_wait(waiter, second, 2), TS_OK);
  CHECK_EQ(ts_waiter_wait(waiter, 0, 3), TS_OK);
  CHECK_EQ(ts_waiter_wait(waiter, third, 4), TS_OK);
  complete(third);
  complete(second);
  until_waiting();
  check_none(waiter);
  complete(first);
  for (uint64_t token = 1; token <= 4; ++token) CHECK_EQ(next(waiter).token, token);
  check_none(waiter);
  destroy(waiter);
}

TEST(an_event_that_fails_is_told_with_the_drivers_error) {
  ts_waiter *waiter = make();
  const uint64_t event = fresh_event();
  complete(event, 700);
  CHECK_EQ(ts_waiter_wait(waiter, event, 5), TS_OK);
  const ts_waiter_done done = next(waiter);
  CHECK_EQ(done.token, 5U);
  CHECK_EQ(done.status, 700);
  std::array<char, 128> text;
  const std::string whole = "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered";
  CHECK_EQ(ts_waiter_status_text(waiter, done.status, text.data(), 128),
           static_cast<int32_t>(whole.size()));
  CHECK_EQ(std::string(text.data()), whole);
  CHECK_EQ(ts_waiter_status_text(waiter, done.status, text.data(), 5), 4);
  CHECK_EQ(std::string(text.data()), "CUDA");
  ts_waiter_status_text(waiter, 999, text.data(), 128);
  CHECK_EQ(std::string(text.data()), "CUDA error 999");
  ts_waiter_status_text(waiter, 101, text.data(), 128);
  CHECK_EQ(std::string(text.data()), "CUDA_ERROR_INVALID_DEVICE");
  destroy(waiter);
}

TEST(what_was_not_fetched_counts_as_full) {
  ts_waiter *waiter = make();
  const uint64_t event = fresh_event();
  CHECK_EQ(ts_waiter_wait(waiter, event, 0), TS_OK);
  for (uint64_t token = 1; token < TS_WAITER_EVENTS_MAX; ++token)
    CHECK_EQ(ts_waiter_wait(waiter, 0, token), TS_OK);
  CHECK_EQ(ts_waiter_wait(waiter, 0, 99), TS_ERR_CAPACITY);
  CHECK(std::string(ts_last_error()).find("64 events") != std::string::npos);
  complete(event);
  CHECK_EQ(next(waiter).token, 0U);
  CHECK_EQ(ts_waiter_wait(waiter, 0, 100), TS_OK);
  for (uint64_t token = 1; token < TS_WAITER_EVENTS_MAX; ++token)
    CHECK_EQ(next(waiter).token, token);
  CHECK_EQ(next(waiter).token, 100U);
  check_none(waiter);
  destroy(waiter);
}

TEST(many_events_lap_after_lap_while_another_thread_completes_them) {
  ts_waiter *waiter = make();
  constexpr uint64_t kEvents = 2'000, kAhead = 3;
  const uint64_t first = 1'000'000;
  std::thread device([&] {
    for (uint64_t number = 0; number < kEvents; ++number) complete(first + number);
  });
  uint64_t given = 0;
  for (uint64_t fetched = 0; fetched < kEvents; ++fetched) {
    for (; given < kEvents && given < fetched + kAhead; ++given)
      CHECK_EQ(ts_waiter_wait(waiter, first + given, given), TS_OK);
    CHECK_EQ(next(waiter).token, fetched);
  }
  device.join();
  check_none(waiter);
  destroy(waiter);
}

TEST(destroy_waits_for_the_event_at_hand) {
  ts_waiter *waiter = make();
  const uint64_t event = fresh_event();
  CHECK_EQ(ts_waiter_wait(waiter, event, 1), TS_OK);
  until_waiting();
  std::thread device([event] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    complete(event);
  });
  destroy(waiter);
  device.join();
}

TEST(destroy_leaves_a_thread_that_hangs_behind_which_ends_when_it_can_and_begins_nothing_new) {
  ts_waiter *waiter = make();
  const uint64_t event = fresh_event();
  CHECK_EQ(ts_waiter_wait(waiter, event, 1), TS_OK);
  CHECK_EQ(ts_waiter_wait(waiter, fresh_event(), 2), TS_OK);
  until_waiting();
  const int64_t begin_us = now_us();
  CHECK_EQ(ts_waiter_destroy(waiter, 30), 0);
  CHECK(now_us() - begin_us >= 30'000);
  CHECK_EQ(contexts(), 1);
  complete(event);
  for (int tries = 0; contexts() > 0; ++tries) {
    CHECK(tries < kLimitMs);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

TEST(a_library_that_is_no_driver_is_refused) {
  ts_waiter *waiter = nullptr;
  check_refused(ts_waiter_create("libabsent.so.1", 0, &waiter), "libabsent.so.1: cannot open");
  check_refused(ts_waiter_create(FAKE_WITHOUT_EVENTS, 0, &waiter), "cuEventSynchronize");
  CHECK(waiter == nullptr);
}

TEST(each_step_into_the_device_may_fail) {
  const auto fail = fake<void (*)(const char *, int)>("fake_fail");
  ts_waiter *waiter = nullptr;
  for (const char *function :
       {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent"}) {
    fail(function, 999);
    check_refused(ts_waiter_create(FAKE, 1, &waiter),
                  std::string(function) + " for device 1: CUDA error 999");
    fail(function, 0);
  }
  check_refused(ts_waiter_create(FAKE, 7, &waiter),
                "cuDeviceGet for device 7: CUDA_ERROR_INVALID_DEVICE");
  CHECK(waiter == nullptr);
  destroy(make(FAKE, 1));
}

TEST(wrong_arguments_and_a_null_handle_are_errors) {
  ts_waiter *waiter = nullptr;
  ts_waiter_done done;
  std::array<char, 8> text;
  CHECK_EQ(ts_waiter_create(nullptr, 0, &waiter), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_waiter_create(FAKE, -1, &waiter), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_waiter_create(FAKE, 0, nullptr), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_waiter_fd(nullptr), TS_ERR_CLOSED);
  CHECK_EQ(ts_waiter_wait(nullptr, 0, 0), TS_ERR_CLOSED);
  CHECK_EQ(ts_waiter_next(nullptr, &done), TS_ERR_CLOSED);
  CHECK_EQ(ts_waiter_status_text(nullptr, 0, text.data(), 8), TS_ERR_CLOSED);
  CHECK_EQ(ts_waiter_destroy(nullptr, 0), TS_ERR_CLOSED);
  waiter = make();
  CHECK_EQ(ts_waiter_next(waiter, nullptr), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_waiter_status_text(waiter, 0, text.data(), 0), TS_ERR_ARGUMENT);
  CHECK_EQ(ts_waiter_status_text(waiter, 0, nullptr, 8), TS_ERR_ARGUMENT);
  destroy(waiter);
}

TEST(the_thread_leaves_signals_to_others) {
  static volatile std::sig_atomic_t seen = 0;
  ts_waiter *waiter = make();
  std::signal(SIGUSR1, [](int) { seen = 1; });
  sigset_t one, before;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &one, &before);
  CHECK(sigismember(&before, SIGUSR1) == 0);
  kill(getpid(), SIGUSR1);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_EQ(static_cast<int>(seen), 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  CHECK_EQ(static_cast<int>(seen), 1);
  destroy(waiter);
}

CHECK_MAIN()
