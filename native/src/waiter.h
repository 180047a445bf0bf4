// Waits for CUDA events on a thread of its own, so that no loop has to.
//
// Driver is the driver library, loaded by name: nothing here needs CUDA to be built or linked.
// Waiter is the thread, the jobs it was given and the answers it has. Nobody but that thread waits
// in the driver.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tokenspeed.h"

namespace ts::waiter {

// As the driver's ABI has them: a CUresult, and a CUcontext and a CUevent, which are pointers.
using Result = int;
using Context = void *;
using Event = void *;

// The few functions of the driver that are needed. Of one thread, but for `explain`.
class Driver {
 public:
  Driver() = default;
  Driver(const Driver &) = delete;
  Driver &operator=(const Driver &) = delete;
  ~Driver();

  // Loads the library; TS_ERR_ARGUMENT if it is not there or lacks a function.
  int32_t load(const std::string &library);
  // Makes the primary context of `device` current in the calling thread; returns an empty text, or
  // which call failed and why. `leave` gives it back, also after half an `enter`.
  std::string enter(int32_t device);
  void leave();
  // Blocks until `event` has come; 0, or the driver's error.
  Result wait(Event event) const { return event_synchronize_(event); }
  // The name of an error and what it means.
  std::string explain(Result result) const;

 private:
  template <typename Function>
  bool find(const char *name, Function &out);

  void *library_ = nullptr;
  bool retained_ = false;
  int device_ = 0;
  Result (*init_)(unsigned flags) = nullptr;
  Result (*device_get_)(int *device, int ordinal) = nullptr;
  Result (*context_retain_)(Context *context, int device) = nullptr;
  Result (*context_release_)(int device) = nullptr;
  Result (*context_set_current_)(Context context) = nullptr;
  Result (*event_synchronize_)(Event event) = nullptr;
  Result (*error_name_)(Result result, const char **text) = nullptr;
  Result (*error_string_)(Result result, const char **text) = nullptr;
};

// Jobs go in, answers come out, in one order: a ring of kCapacity entries in three parts.
//
//   fetched <= answered <= given <= fetched + kCapacity
//           answers      jobs
//
// Entry `answered` is the one that the thread waits for. The eventfd is readable exactly while
// there are answers. Handle and thread share it, for a thread that hangs in the driver outlives its
// handle.
class Waiter {
 public:
  static constexpr uint64_t kCapacity = TS_WAITER_EVENTS_MAX;

  Waiter() = default;
  Waiter(const Waiter &) = delete;
  Waiter &operator=(const Waiter &) = delete;
  ~Waiter();

  // Starts the thread and returns when it has entered the device. On failure the thread has ended.
  static int32_t start(const std::string &library, int32_t device, std::shared_ptr<Waiter> &out);

  int fd() const { return fd_; }
  int32_t give(Event event, uint64_t token);
  int32_t fetch(ts_waiter_done &out);
  // Ends the thread, which drops the jobs it has not begun, and joins it: 1. If it still waits for
  // an event after `limit_ms`, it is let go: 0.
  int32_t stop(int32_t limit_ms);
  const Driver &driver() const { return driver_; }

 private:
  enum class Phase { kStarting, kRunning, kEnded };

  struct Entry {
    Event event;
    ts_waiter_done done;
  };

  void live(int32_t device);
  bool take(Event &event);
  void answer(Result result);
  void enter_phase(Phase phase);
  int32_t open(const std::string &library);
  int32_t settle();
  Entry &entry(uint64_t number) { return ring_[static_cast<size_t>(number % kCapacity)]; }

  Driver driver_;
  int fd_ = -1;
  std::thread thread_;  // for the handle's side only
  std::mutex mutex_;
  std::condition_variable changed_;
  // Under the mutex.
  Phase phase_ = Phase::kStarting;
  bool stopping_ = false;
  std::string failure_;  // why the device was not entered
  uint64_t fetched_ = 0;
  uint64_t answered_ = 0;
  uint64_t given_ = 0;
  std::array<Entry, kCapacity> ring_{};
};

}  // namespace ts::waiter
