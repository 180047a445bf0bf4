// Products with quantised weights under the sanitizers: every kernel against the scalar one, bit
// for bit, at odd sizes; the pool while its size changes and while its threads come late.
#include <chrono>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>
#include <tuple>
#include <utility>
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

struct Attended {
  std::vector<float> queries, keys, values, out;
  std::vector<int64_t> tables, counts, contexts;
  tsk_attention asked{};
};

constexpr int PAGE_TOKENS = 20;

// Rows of (queries, context), each in pages of its own, the last page first.
Attended random_rows(const std::vector<std::pair<int, int>> &rows, int heads, int kv_heads, int dim,
                     std::mt19937 &random) {
  Attended made;
  std::normal_distribution<float> normal;
  const int width = 80;
  int tokens = 0, pages = 1;
  for (const auto &[count, context] : rows) {
    made.counts.push_back(count);
    made.contexts.push_back(context);
    tokens += count;
    const int needed = (count + context + PAGE_TOKENS - 1) / PAGE_TOKENS;
    for (int i = 0; i < width; ++i)
      made.tables.push_back(i < needed ? pages + needed - 1 - i : int64_t{1} << 40);
    pages += needed;
  }
  made.queries.resize(static_cast<size_t>(tokens * heads * dim));
  made.out.resize(made.queries.size());
  made.keys.resize(static_cast<size_t>(pages * PAGE_TOKENS * kv_heads * dim));
  made.values.resize(made.keys.size());
  for (auto *numbers : {&made.queries, &made.keys, &made.values}) {
    for (auto &number : *numbers) number = normal(random);
  }
  made.asked = {made.queries.data(),
                made.keys.data(),
                made.values.data(),
                made.tables.data(),
                width,
                made.counts.data(),
                made.contexts.data(),
                made.out.data(),
                static_cast<int>(rows.size()),
                PAGE_TOKENS,
                heads,
                kv_heads,
                dim};
  return made;
}

// By the definition, in double precision.
double attended(const Attended &made, int row, int64_t token, int64_t position, int head, int at) {
  const auto &asked = made.asked;
  const int kv_head = head / (asked.heads / asked.kv_heads);
  const float *query = asked.queries + (token * asked.heads + head) * asked.head_dim;
  double weights = 0, sum = 0;
  for (int64_t key = 0; key <= position; ++key) {
    const int64_t page = asked.tables[row * asked.table_stride + key / PAGE_TOKENS];
    const int64_t place =
        ((page * PAGE_TOKENS + key % PAGE_TOKENS) * asked.kv_heads + kv_head) * asked.head_dim;
    double score = 0;
    for (int d = 0; d < asked.head_dim; ++d)
      score += double{query[d]} * double{asked.key_pages[place + d]};
    const double weight = std::exp(score / std::sqrt(asked.head_dim));
    weights += weight;
    sum += weight * double{asked.value_pages[place + at]};
  }
  return sum / weights;
}

// Table entries behind a row's last page lead nowhere: whoever reads them is caught.
void attention_is_the_definition() {
  std::mt19937 random(3);
  const std::vector<std::vector<std::pair<int, int>>> steps{
      {{1, 0}}, {{1, 63}, {30, 0}, {1, 1500}}, {{9, 507}, {2, 62}}, {{70, 3}}};
  for (const auto &[heads, kv_heads, dim] : {std::tuple{9, 3, 64}, {4, 4, 8}, {30, 1, 40}}) {
    for (const auto &rows : steps) {
      for (int isa = 0; isa <= tsk_best_isa(); ++isa) {
        Attended made = random_rows(rows, heads, kv_heads, dim, random);
        CHECK(tsk_attend(&made.asked, isa) == 0);
        int64_t token = 0;
        for (size_t row = 0; row < rows.size(); token += rows[row].first, ++row) {
          const int64_t last = token + rows[row].first - 1;
          const int64_t position = rows[row].second + rows[row].first - 1;
          for (const int at : {0, dim - 1}) {
            const auto found = made.out[static_cast<size_t>((last * heads + heads - 1) * dim + at)];
            const double wanted =
                attended(made, static_cast<int>(row), last, position, heads - 1, at);
            CHECK(std::abs(double{found} - wanted) < 1e-5);
          }
        }
      }
    }
  }
}

void small_operations_stay_inside_their_rows() {
  for (int isa = 0; isa <= tsk_best_isa(); ++isa) {
    for (const int n : {2, 14, 34, 66}) {
      const auto size = static_cast<size_t>(n);
      std::vector<float> x(3 * size, 0.5F), residual(3 * size, 0.25F), weight(size, 2.0F);
      std::vector<float> y(3 * size), folded(3 * size / 2);
      CHECK(tsk_rms_norm(x.data(), residual.data(), weight.data(), 0.0F, 3, n, y.data(), isa) == 0);
      for (const float number : y) CHECK(std::abs(number - 2.0F) < 1e-5F);
      for (const float number : x) CHECK(number == 0.75F);
      CHECK(tsk_silu_mul(x.data(), 3, n / 2, folded.data(), isa) == 0);
      const float wanted = 0.75F * 0.75F / (1.0F + std::exp(-0.75F));
      for (const float number : folded) CHECK(std::abs(number - wanted) < 1e-6F);
      // One token of a query, a key and a value head, turned by a quarter: (a, b) to (-b, a).
      std::vector<float> qkv(3 * size), cos(size, 0.0F), sin(size, 1.0F), query(size);
      std::vector<float> keys(2 * size), values(2 * size);
      for (size_t i = 0; i < qkv.size(); ++i) qkv[i] = static_cast<float>(i);
      for (size_t i = 0; i < size / 2; ++i) sin[i] = -1.0F;
      const int64_t place = 1;
      CHECK(tsk_rope_store(qkv.data(), 1, 1, 1, n, cos.data(), sin.data(), keys.data(),
                           values.data(), &place, query.data(), isa) == 0);
      CHECK(query[0] == -qkv[size / 2] && query[size / 2] == qkv[0]);
      CHECK(keys[size] == -qkv[size + size / 2] && keys[0] == 0.0F);
      CHECK(values[2 * size - 1] == qkv.back() && values[0] == 0.0F);
    }
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
  Attended made = random_rows({{1, 4}}, 2, 1, 16, random);
  CHECK(tsk_attend(nullptr, 0) == TSK_ERR_ARGUMENT);
  CHECK(tsk_attend(&made.asked, tsk_best_isa() + 1) == TSK_ERR_ARGUMENT);
  made.asked.head_dim = 12;
  CHECK(tsk_attend(&made.asked, 0) == TSK_ERR_ARGUMENT);
  made.asked.head_dim = 16;
  made.counts[0] = 0;
  CHECK(tsk_attend(&made.asked, 0) == TSK_ERR_ARGUMENT);
}

TEST(the_same_bits_from_every_kernel) {
  for (const int threads : {1, 3}) {
    CHECK(tsk_set_threads(threads) == 0);
    every_kernel_gives_the_same_bits();
  }
}

TEST(each_chunk_once) { each_chunk_is_computed_once_whatever_the_threads_do(); }

TEST(attention) {
  for (const int threads : {1, 3}) {
    CHECK(tsk_set_threads(threads) == 0);
    attention_is_the_definition();
  }
}

TEST(small_operations) { small_operations_stay_inside_their_rows(); }

TEST(wrong_arguments) { wrong_arguments_are_refused(); }

}  // namespace

CHECK_MAIN()
