#include "cpu/pool.h"

#include <chrono>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tsk {
namespace {

using Clock = std::chrono::steady_clock;

// From one product of a step to the next; longer, and the processor is worth more to others.
constexpr auto LOOK_FOR_WORK = std::chrono::microseconds(40);
constexpr int LOOKS_PER_CLOCK = 64;
constexpr int CHUNKS_MAX = (1 << 20) - 1;

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

}  // namespace

Pool &Pool::shared() {
  static Pool pool;
  return pool;
}

void Pool::resize(int threads) {
  for (auto &thread : threads_) thread.request_stop();
  news_.fetch_add(1);
  news_.notify_all();
  threads_.clear();
  for (int i = 1; i < threads; ++i) {
    threads_.emplace_back([this](std::stop_token stop) { live(std::move(stop)); });
  }
}

void Pool::run(Work work, const void *job, int chunks) {
  if (threads_.empty() || chunks <= 1 || chunks > CHUNKS_MAX) {
    for (int chunk = 0; chunk < chunks; ++chunk) work(job, chunk);
    return;
  }
  work_ = work;
  job_ = job;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t number = (state_.load(std::memory_order_relaxed) >> (2 * COUNT_BITS)) + 1;
  state_.store(number << (2 * COUNT_BITS) | static_cast<uint64_t>(chunks) << COUNT_BITS);
  news_.fetch_add(1);
  if (sleepers_.load() > 0) news_.notify_all();
  int done = take_chunks();
  done += done_.fetch_add(done, std::memory_order_acq_rel);
  for (int look = 0; done != chunks; done = done_.load(std::memory_order_acquire)) {
    // The other thread may have lost its processor in the middle of a chunk: let it have this one.
    if (++look > LOOKS_PER_CLOCK * 64) std::this_thread::yield();
    relax();
  }
}

int Pool::take_chunks() {
  int taken = 0;
  uint64_t state = state_.load(std::memory_order_acquire);
  while ((state & COUNT_MASK) < ((state >> COUNT_BITS) & COUNT_MASK)) {
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
    // The chunk is ours, so its caller waits, and work and job are those of this state.
    work_(job_, static_cast<int>(state & COUNT_MASK));
    ++taken;
    state = state_.load(std::memory_order_acquire);
  }
  return taken;
}

void Pool::live(std::stop_token stop) {
  while (!stop.stop_requested()) {
    const uint64_t seen = state_.load(std::memory_order_acquire);
    const int taken = take_chunks();
    if (taken > 0) {
      done_.fetch_add(taken, std::memory_order_acq_rel);
    } else if (!wait_for_news(seen, stop)) {
      return;
    }
  }
}

bool Pool::wait_for_news(uint64_t seen, const std::stop_token &stop) {
  const auto until = Clock::now() + LOOK_FOR_WORK;
  do {
    for (int look = 0; look < LOOKS_PER_CLOCK; ++look) {
      if (state_.load(std::memory_order_relaxed) != seen) return true;
      relax();
    }
  } while (Clock::now() < until);
  const uint32_t news = news_.load();
  sleepers_.fetch_add(1);
  if (state_.load() == seen && !stop.stop_requested()) news_.wait(news);
  sleepers_.fetch_sub(1);
  return !stop.stop_requested();
}

}  // namespace tsk
