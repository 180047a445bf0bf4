// The thread, and the ring of jobs and answers that it shares with its handle.

#include "waiter.h"

#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <ctime>
#include <system_error>

#include "error.h"

namespace ts::waiter {

namespace {

int64_t now_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
}

// Blocks every signal while it lives, for the thread that is started meanwhile to inherit: signals
// are for threads that know what to do with them.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked &) = delete;
  SignalsBlocked &operator=(const SignalsBlocked &) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

}  // namespace

Waiter::~Waiter() {
  if (fd_ >= 0) close(fd_);
}

int32_t Waiter::start(const std::string &library, int32_t device, std::shared_ptr<Waiter> &out) {
  const auto waiter = std::make_shared<Waiter>();
  if (const int32_t status = waiter->open(library); status < 0) return status;
  try {
    const SignalsBlocked blocked;
    waiter->thread_ = std::thread([waiter, device] { waiter->live(device); });
  } catch (const std::system_error &error) {
    return fail(TS_ERR_MEMORY, std::string("the waiter's thread: ") + error.what());
  }
  if (const int32_t status = waiter->settle(); status < 0) return status;
  out = waiter;
  return TS_OK;
}

int32_t Waiter::open(const std::string &library) {
  if (const int32_t status = driver_.load(library); status < 0) return status;
  fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd_ >= 0) return TS_OK;
  return fail(TS_ERR_MEMORY, std::string("eventfd of the waiter: ") + strerror(errno));
}

// Waits until the thread has entered the device, or has failed to and ended.
int32_t Waiter::settle() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return phase_ != Phase::kStarting; });
  if (phase_ == Phase::kRunning) return TS_OK;
  lock.unlock();
  thread_.join();
  return fail(TS_ERR_ARGUMENT, failure_);
}

int32_t Waiter::give(Event event, uint64_t token) {
  const std::lock_guard lock(mutex_);
  if (given_ - fetched_ == kCapacity) {
    return fail(TS_ERR_CAPACITY, "the waiter has " + std::to_string(kCapacity) +
                                     " events that it waits for or whose end was not fetched");
  }
  entry(given_++) = {event, {token, 0, 0, 0}};
  changed_.notify_all();
  return TS_OK;
}

int32_t Waiter::fetch(ts_waiter_done &out) {
  const std::lock_guard lock(mutex_);
  if (fetched_ == answered_) return 0;
  out = entry(fetched_++).done;
  if (fetched_ == answered_) {
    uint64_t count;
    while (read(fd_, &count, sizeof count) < 0 && errno == EINTR) continue;
  }
  return 1;
}

int32_t Waiter::stop(int32_t limit_ms) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  const bool ended = changed_.wait_for(lock, std::chrono::milliseconds(limit_ms),
                                       [this] { return phase_ == Phase::kEnded; });
  lock.unlock();
  // Nothing can end a thread that hangs in the driver. It holds a share in this.
  if (ended)
    thread_.join();
  else
    thread_.detach();
  return ended ? 1 : 0;
}

// ---- the thread

void Waiter::live(int32_t device) {
  pthread_setname_np(pthread_self(), "ts-waiter");
  failure_ = driver_.enter(device);
  if (failure_.empty()) {
    enter_phase(Phase::kRunning);
    Event event;
    while (take(event)) answer(event == nullptr ? 0 : driver_.wait(event));
  }
  driver_.leave();
  enter_phase(Phase::kEnded);
}

// Returns false when there is nothing more to wait for.
bool Waiter::take(Event &event) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return stopping_ || answered_ != given_; });
  if (stopping_) return false;
  event = entry(answered_).event;
  return true;
}

void Waiter::answer(Result result) {
  const int64_t done_us = now_us();
  const std::lock_guard lock(mutex_);
  ts_waiter_done &done = entry(answered_).done;
  done.done_us = done_us;
  done.status = result;
  // Inside the lock, so that the eventfd never tells of an answer that was fetched already.
  if (fetched_ == answered_++) {
    const uint64_t one = 1;
    while (write(fd_, &one, sizeof one) < 0 && errno == EINTR) continue;
  }
}

void Waiter::enter_phase(Phase phase) {
  const std::lock_guard lock(mutex_);
  phase_ = phase;
  changed_.notify_all();
}

}  // namespace ts::waiter
