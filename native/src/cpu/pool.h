// Threads that share the chunks of one job with their caller.
//
// The caller begins at once; a thread that wakes late finds what is left, or nothing. So nobody
// waits for a sleeper: a job ends when its last chunk does. A thread that has nothing to do looks
// for work for some microseconds, since the next product of a step comes soon, and then sleeps.
//
// Invariant: when `run` returns, every chunk was computed exactly once and no thread touches the
// job.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace tsk {

class Pool {
 public:
  using Work = void (*)(const void *job, int chunk);

  static Pool &shared();

  // Changes the number of threads, the caller's included. Not while a job runs.
  void resize(int threads);
  int threads() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls work(job, chunk) for each chunk in [0, chunks), in any order, on any thread.
  void run(Work work, const void *job, int chunks);

  ~Pool() { resize(1); }

 private:
  static constexpr int COUNT_BITS = 20;
  static constexpr uint64_t COUNT_MASK = (uint64_t{1} << COUNT_BITS) - 1;

  void live(std::stop_token stop);
  bool wait_for_news(uint64_t seen, const std::stop_token &stop);
  int take_chunks();

  std::vector<std::jthread> threads_;
  Work work_ = nullptr;
  const void *job_ = nullptr;
  // Number of the job, chunks of it, next chunk: in one word, so that a chunk is taken from the job
  // that was looked at and no other.
  alignas(64) std::atomic<uint64_t> state_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<uint32_t> news_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace tsk
