#include "backend/cpu/peaks.h"

#include <algorithm>
#include <vector>

#include "backend/cpu/attention_kernels.h"

namespace headwater::backend::cpu {
namespace {

constexpr int64_t kMeasureNs = 40'000'000;    // of each primitive
constexpr uint64_t kCacheBytes = 512u << 10;  // per worker: beyond L1, inside L2
constexpr uint64_t kMemoryBytes = 48u << 20;  // per worker: beyond L2

const PeakKernels& kernels_of(Target target) {
  switch (target) {
    case Target::kScalar:
      return kPeaksScalar;
    case Target::kAvx2:
      return kPeaksAvx2;
    case Target::kAvx512:
      return kPeaksAvx512;
    case Target::kAvx512Bf16:
      return kPeaksAvx512Bf16;
    case Target::kAvx512Amx:
      return kPeaksAvx512Amx;
  }
  check(false, "a target without peak kernels");
  return kPeaksScalar;
}

// Amount a second that all workers reach together, where one call of f(worker) does `amount`. The best of several
// rounds: a peak is what the machine can do when it is not disturbed.
template <typename F>
double rate(ThreadPool& pool, double amount, F&& f) {
  const SystemClock clock;
  const uint32_t tasks = pool.size();
  double best = 0;
  for (const int64_t end = clock.now_ns() + kMeasureNs; best == 0 || clock.now_ns() < end;) {
    const int64_t begin = clock.now_ns();
    pool.run(tasks, [&](uint32_t task, uint32_t) { f(task); });
    best = std::max(best, amount * tasks * 1e9 / static_cast<double>(std::max<int64_t>(1, clock.now_ns() - begin)));
  }
  return best;
}

}  // namespace

ops::Peaks measure_peaks(Target target, ThreadPool& pool, uint32_t group) {
  const PeakKernels& kernels = kernels_of(target);
  constexpr uint64_t kKeysBytes = uint64_t{kPeakKeys} * kPeakWidth * 2;
  constexpr uint64_t kFactorsBytes = uint64_t{kRowsTileMax} * kPeakWidth * sizeof(float);
  constexpr uint64_t kScoresBytes = uint64_t{kRowsTileMax} * kPeakKeys * sizeof(float);
  constexpr uint64_t kWorkerBytes = kKeysBytes + kFactorsBytes + kScoresBytes + kMemoryBytes;
  auto memory = Buffer::create(kWorkerBytes * pool.size());
  if (!memory) return {};
  std::ranges::fill(memory->as<uint32_t>(), 0x3c003c00u);  // small numbers in f32 and bf16; touches every page
  const auto at = [&](uint32_t worker) { return memory->data() + kWorkerBytes * worker; };
  const auto buffers = [&](uint32_t worker) {
    std::byte* base = at(worker);
    return PeakBuffers{base, base + kKeysBytes, reinterpret_cast<float*>(base + kKeysBytes + kFactorsBytes)};
  };
  const auto dots = [&](uint32_t rows, uint32_t repeats) {
    const double multiply_adds = double{kPeakKeys} * kPeakWidth * rows * repeats;
    return rate(pool, multiply_adds, [&](uint32_t worker) { kernels.dots(buffers(worker), rows, repeats); });
  };
  std::vector<float> sums(pool.size());  // keeps the reads
  const auto read = [&](uint64_t bytes, uint32_t repeats) {
    return rate(pool, static_cast<double>(bytes) * repeats, [&](uint32_t worker) {
      for (uint32_t i = 0; i < repeats; ++i) {
        sums[worker] += kernels.read(at(worker) + kKeysBytes + kFactorsBytes + kScoresBytes, bytes);
      }
    });
  };
  ops::Peaks peaks;
  peaks.multiply_adds_per_s = dots(kernels.rows_tile, 400);
  peaks.multiply_adds_flat_per_s = dots(std::min(group, kernels.rows_tile), 400);
  peaks.weights_per_s =
      rate(pool, double{kPeakScores} * 200, [&](uint32_t worker) { kernels.weights(buffers(worker), 200); });
  constexpr uint32_t kByteRepeats = 4000;
  peaks.byte_multiply_adds_per_s = rate(pool, double{kByteRepeats} * kernels.byte_multiply_adds,
                                        [&](uint32_t worker) { kernels.byte_dots(buffers(worker), kByteRepeats); });
  peaks.cache_bytes_per_s = read(kCacheBytes, 40);
  peaks.memory_bytes_per_s = read(kMemoryBytes, 1);
  return peaks;
}

}  // namespace headwater::backend::cpu
