// Products with quantised weights under the sanitizers: every kernel against the scalar one, bit
// for bit, at odd sizes; the pool while its size changes and while its threads come late.
#include <chrono>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "check.h"
#include "cpu/pool.h"
#include "cpu/tile.h"
#include "tokenspeed_kernels.h"

namespace {

struct Weight {
  std::vector<uint8_t> data;
  tsk_weight view{};
};

Weight random_weight(int outputs, int inputs, int bits, bool low, std::mt19937 &random) {
  const int tiles = (outputs + TSK_TILE - 1) / TSK_TILE;
  const int blocks = inputs / TSK_BLOCK;
  const int step = tsk::block_bytes(bits, low);
  const int quants = TSK_TILE * TSK_BLOCK * bits / 8;
  Weight weight;
  weight.data.resize(static_cast<size_t>(tiles) * static_cast<size_t>(blocks * step));
  for (auto &byte : weight.data) byte = static_cast<uint8_t>(random());
  for (int block = 0; block < tiles * blocks; ++block) {
    uint8_t *halves = weight.data.data() + block * step + quants;
    // Halves between 1/64 and 1/8: finite, of both signs.
    for (int i = 1; i < step - quants; i += 2)
      halves[i] = static_cast<uint8_t>((halves[i] & 0x83) | 0x24);
  }
  weight.view = {weight.data.data(), outputs, inputs, bits, low ? 1 : 0};
  return weight;
}

std::vector<float> product(const Weight &weight, const std::vector<float> &x, int rows, int isa) {
  std::vector<float> y(static_cast<size_t>(rows) * static_cast<size_t>(weight.view.outputs));
  CHECK(tsk_matmul(&weight.view, x.data(), weight.view.inputs, rows, y.data(), weight.view.outputs,
                   isa) == 0);
  return y;
}

void every_kernel_gives_the_same_bits() {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (const int outputs : {1, 16, 37}) {
    for (const int inputs : {32, 160}) {
      for (const int rows : {1, 3, 8, 13}) {
        for (const int form : {0, 1, 2, 3}) {
          const Weight weight =
              random_weight(outputs, inputs, form < 2 ? 4 : 8, form % 2 == 0, random);
          std::vector<float> x(static_cast<size_t>(rows * inputs));
          for (auto &number : x) number = normal(random);
          const auto wanted = product(weight, x, rows, TSK_SCALAR);
          for (int isa = 0; isa <= tsk_best_isa(); ++isa) {
            const auto found = product(weight, x, rows, isa);
            CHECK(std::memcmp(found.data(), wanted.data(), wanted.size() * sizeof(float)) == 0);
          }
        }
      }
    }
  }
}

void each_chunk_is_computed_once_whatever_the_threads_do() {
  struct Job {
    std::vector<int> times;
    std::atomic<int> pace{0};
  };
  const auto work = [](const void *job, int chunk) {
    auto &mine = *static_cast<Job *>(const_cast<void *>(job));
    ++mine.times[static_cast<size_t>(chunk)];
    if (chunk % 7 == mine.pace) std::this_thread::yield();
  };
  tsk::Pool pool;
  for (int round = 0; round < 300; ++round) {
    if (round % 50 == 0) pool.resize(1 + round / 50 % 4);
    Job job;
    job.times.resize(static_cast<size_t>(1 + round % 40));
    job.pace = round % 9;
    pool.run(work, &job, static_cast<int>(job.times.size()));
    for (const int times : job.times) CHECK(times == 1);
    if (round % 10 == 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));  // let them fall asleep
  }
}

void wrong_arguments_are_refused() {
  std::mt19937 random(2);
  Weight weight = random_weight(16, 32, 4, false, random);
  std::vector<float> x(32);
  std::vector<float> y(16);
  CHECK(tsk_matmul(&weight.view, x.data(), 32, 1, y.data(), 16, tsk_best_isa() + 1) ==
        TSK_ERR_ARGUMENT);
  CHECK(tsk_matmul(&weight.view, nullptr, 32, 1, y.data(), 16, 0) == TSK_ERR_ARGUMENT);
  CHECK(tsk_matmul(&weight.view, nullptr, 32, 0, nullptr, 16, 0) == 0);
  weight.view.inputs = 33;
  CHECK(tsk_matmul(&weight.view, x.data(), 32, 1, y.data(), 16, 0) == TSK_ERR_ARGUMENT);
  CHECK(tsk_set_threads(0) == TSK_ERR_ARGUMENT);
}

TEST(the_same_bits_from_every_kernel) {
  for (const int threads : {1, 3}) {
    CHECK(tsk_set_threads(threads) == 0);
    every_kernel_gives_the_same_bits();
  }
}

TEST(each_chunk_once) { each_chunk_is_computed_once_whatever_the_threads_do(); }

TEST(wrong_arguments) { wrong_arguments_are_refused(); }

}  // namespace

CHECK_MAIN()
