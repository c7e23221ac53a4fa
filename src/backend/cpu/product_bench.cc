// Products of the default model's shapes beside the two limits of the same cores: reading alone and VPDPBUSD alone.
//   ninja product_bench && src/backend/cpu/product_bench [target] [threads]
// Figures are best deciles over calls, so that other work on the machine disturbs the short ones little.
#include <fmt/core.h>
#include <immintrin.h>
#include <time.h>

#include <algorithm>
#include <cstdlib>
#include <set>

#include "backend/cpu/dense_test_kit.h"
#include "backend/cpu/experts.h"
#include "backend/cpu/products.h"

namespace headwater::backend::cpu {
namespace {

constexpr int kTurns = 40;
constexpr size_t kChunk = 32 << 10;  // bytes of a task that only reads
constexpr uint32_t kPeakSteps = 2000;
constexpr uint32_t kPeakChains = 12;

struct Cost {
  double seconds;      // wall
  double cpu_seconds;  // of the process; with one thread it leaves out what the system gave to others
};

double cpu_now() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double best_decile(std::vector<double>& values) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(values.size() / 10);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

template <typename F>
Cost cost_of(size_t calls, F&& f) {
  const SystemClock clock;
  std::vector<double> wall, cpu;
  for (size_t call = 0; call < calls; ++call) {
    const double cpu_begin = cpu_now();
    const int64_t begin = clock.now_ns();
    f(call);
    wall.push_back(static_cast<double>(clock.now_ns() - begin) * 1e-9);
    cpu.push_back(cpu_now() - cpu_begin);
  }
  return {best_decile(wall), best_decile(cpu)};
}

__attribute__((target("avx512f"))) void read_all(const std::byte* from, size_t bytes) {
  for (size_t i = 0; i < bytes; i += 64) {
    const __m512i vector = _mm512_load_si512(from + i);
    asm volatile("" ::"v"(vector));
  }
}

__attribute__((target("avx512f,avx512vnni"))) void multiply_alone() {
  __m512i sums[kPeakChains] = {};
  const __m512i ones = _mm512_set1_epi8(1);
  for (uint32_t i = 0; i < kPeakSteps; ++i) {
#if defined(__clang__)
#pragma unroll
#else
#pragma GCC unroll 12
#endif
    for (__m512i& sum : sums) asm volatile("vpdpbusd %1, %1, %0" : "+v"(sum) : "v"(ones));
  }
}

void print_limits(ThreadPool& pool) {
  const uint32_t tasks = pool.size() * 8;
  const double peak =
      cost_of(200, [&](size_t) { pool.run(tasks, [](uint32_t, uint32_t) { multiply_alone(); }); }).seconds;
  fmt::print("VPDPBUSD alone: {:.0f} GFLOP/s\n", 128e-9 * kPeakSteps * kPeakChains * tasks / peak);
  for (const size_t bytes : {size_t{16} << 20, size_t{100} << 20}) {
    Buffer buffer = std::move(Buffer::create(bytes)).value();
    std::fill(buffer.as<uint8_t>().begin(), buffer.as<uint8_t>().end(), uint8_t{1});
    const size_t part = size_t{512} << 10;  // a call reads as much as a product does
    const Cost cost = cost_of(bytes / part * kTurns, [&](size_t call) {
      const std::byte* from = buffer.data() + call * part % bytes;
      pool.run(part / kChunk, [&](uint32_t task, uint32_t) { read_all(from + task * kChunk, kChunk); });
    });
    fmt::print("reading alone, {} MiB in turn: {:.1f} GB/s\n", bytes >> 20,
               static_cast<double>(part) * 1e-9 / cost.seconds);
  }
}

void print_region(ThreadPool& pool) {
  const Cost cost = cost_of(20000, [&](size_t) { pool.run(pool.size(), [](uint32_t, uint32_t) {}); });
  fmt::print("region of the pool: {:.2f} us\n", cost.seconds * 1e6);
}

// `copies` of the weight are multiplied in turn: more than the second-level cache holds, as the layers of a model are.
void print_shape(Target target, ThreadPool& pool, DType dtype, uint32_t features, uint32_t columns, size_t copies) {
  const FileWeight file(dtype, features, columns, 1);
  WeightMemory memory;
  std::vector<std::unique_ptr<PackedWeight>> weights;
  for (size_t i = 0; i < copies; ++i)
    weights.push_back(std::move(PackedWeight::create(file.view, pool, memory)).value());
  const auto weight_bytes = static_cast<double>(weights[0]->groups() * weights[0]->group_bytes());
  for (const uint32_t rows : {1u, 4u, 8u, 16u, 32u, 512u}) {
    std::vector<float> x = random_values(uint64_t{rows} * columns, 2), out(uint64_t{rows} * features);
    Products products(step_kernels(target), pool);
    check(products.reserve(rows, columns).is_ok(), "memory for activations");
    const size_t calls = std::max<size_t>(30, copies * kTurns / rows);
    const Cost cost = cost_of(calls, [&](size_t call) {
      const ops::Product product{weights[call % copies].get(), {out.data(), rows, features, features}};
      products.run({{x.data(), rows, columns, columns}, {&product, 1}});
    });
    const double flops = 2.0 * rows * features * columns;
    fmt::print(
        "{:5} {:5} x {:<5}x{:<4} rows {:<4}{:10.1f} us {:6.1f} GB/s {:5.0f} GFLOP/s | cpu {:9.1f} us {:5.0f} GFLOP/s\n",
        to_string(dtype), features, columns, copies, rows, cost.seconds * 1e6, weight_bytes * 1e-9 / cost.seconds,
        flops * 1e-9 / cost.seconds, cost.cpu_seconds * 1e6, flops * 1e-9 / cost.cpu_seconds);
  }
}

// 8 of 64 experts a token, 2048 -> 768 -> 2048, Q4_0: 170 MB, beside the bytes of the experts that were chosen.
void print_experts(Target target, ThreadPool& pool) {
  constexpr uint32_t kColumns = 2048, kHidden = 768, kExperts = 64, kUsed = 8, kTokensMax = 512;
  WeightMemory memory;
  std::vector<std::unique_ptr<PackedWeight>> weights;
  std::vector<ops::Expert> experts;
  const FileWeight inner(DType::kQ4_0, kHidden, kColumns, 1), outer(DType::kQ4_0, kColumns, kHidden, 2);
  for (uint32_t e = 0; e < kExperts; ++e) {
    for (const FileWeight* file : {&inner, &inner, &outer})
      weights.push_back(std::move(PackedWeight::create(file->view, pool, memory)).value());
    experts.push_back({weights[3 * e].get(), weights[3 * e + 1].get(), weights[3 * e + 2].get()});
  }
  const auto expert_bytes = static_cast<double>(3 * weights[0]->groups() * weights[0]->group_bytes());
  Products products(step_kernels(target), pool);
  Rowwise rowwise(step_kernels(target), pool);
  Experts mix(products, rowwise);
  check(products.reserve(kTokensMax, kColumns).is_ok() &&
            mix.reserve({kTokensMax, kColumns, kHidden, kExperts, kUsed}).is_ok(),
        "memory for activations");
  std::vector<float> x = random_values(kTokensMax * kColumns, 3), out(kTokensMax * kColumns);
  std::vector<float> logits = random_values(kTokensMax * kExperts, 4);
  for (const uint32_t rows : {1u, 4u, 16u, 64u, 512u}) {
    std::set<uint32_t> read;
    for (uint32_t row = 0; row < rows; ++row) {
      ops::ExpertChoice chosen[kUsed];
      ops::choose_experts({&logits[row * kExperts], kExperts}, true, chosen);
      for (const ops::ExpertChoice& choice : chosen) read.insert(choice.expert);
    }
    const Cost cost = cost_of(rows < 64 ? 200 : 30, [&](size_t) {
      mix.run({{x.data(), rows, kColumns, kColumns},
               {logits.data(), rows, kExperts, kExperts},
               experts,
               kUsed,
               true,
               ops::Activation::kSilu,
               {out.data(), rows, kColumns, kColumns}});
    });
    const double bytes = static_cast<double>(read.size()) * expert_bytes,
                 flops = 6.0 * rows * kUsed * kHidden * kColumns;
    fmt::print(
        "experts, {:2} read, rows {:<4}{:10.1f} us {:6.1f} GB/s {:5.0f} GFLOP/s | cpu {:9.1f} us {:5.0f} GFLOP/s\n",
        read.size(), rows, cost.seconds * 1e6, bytes * 1e-9 / cost.seconds, flops * 1e-9 / cost.seconds,
        cost.cpu_seconds * 1e6, flops * 1e-9 / cost.cpu_seconds);
  }
}

int run(const char* name, uint32_t threads) {
  const Result<Target> target = choose_target(name);
  if (!target) {
    fmt::print(stderr, "{}\n", target.status().message());
    return 1;
  }
  const auto pool = std::move(ThreadPool::create(threads)).value();
  fmt::print("{}, {} threads\n", to_string(*target), threads);
  print_region(*pool);
  if (is_available(Target::kAvx512Bf16)) print_limits(*pool);
  print_shape(*target, *pool, DType::kQ4_1, 1536, 576, 30);
  print_shape(*target, *pool, DType::kQ4_1, 576, 1536, 30);
  print_shape(*target, *pool, DType::kQ4_1, 1536, 576, 180);
  print_shape(*target, *pool, DType::kQ8_0, 49152, 576, 1);
  print_shape(*target, *pool, DType::kQ4_0, 1536, 576, 30);
  print_shape(*target, *pool, DType::kBF16, 576, 1536, 30);
  print_shape(*target, *pool, DType::kQ4_0, 768, 2048, 180);
  print_experts(*target, *pool);
  return 0;
}

}  // namespace
}  // namespace headwater::backend::cpu

int main(int argc, char** argv) {
  const uint32_t threads = argc > 2 ? static_cast<uint32_t>(std::atoi(argv[2])) : headwater::cores_available();
  return headwater::backend::cpu::run(argc > 1 ? argv[1] : "", threads);
}
