#include "backend/cpu/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>

#include "backend/cpu/attention.h"
#include "backend/cpu/kv_pages.h"

namespace headwater::backend::cpu {
namespace {

constexpr uint32_t kPageSize = 32;
constexpr uint32_t kRowsMax = 48;
constexpr uint32_t kCut = 256;
constexpr uint32_t kStates = 4;  // of a row in the merge that is timed
constexpr std::array<uint32_t, 6> kRows = {1, 3, 8, 16, 24, kRowsMax};
constexpr std::array<uint32_t, 3> kWidths = {64, 128, 256};
constexpr std::array kDtypes = {DType::kBF16, DType::kF16, DType::kF32};
constexpr uint32_t kReadRows = 3;    // a flat decode item of a model with grouped heads
constexpr uint32_t kReadKeys = 512;  // of an item
constexpr uint32_t kReadWidth = 64;

double thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

double width_of(uint32_t head_dim) {
  return head_dim / 64.0;
}

// One worker's items: one KV head, queries that see every key. Its attention has a pool of its own of one thread, so that
// all workers run the same call side by side.
class Probe {
 public:
  static Result<std::unique_ptr<Probe>> create(Target target, DType dtype, uint32_t head_dim, uint64_t pages) {
    HEADWATER_ASSIGN_OR_RETURN(auto thread, ThreadPool::create(1));
    auto probe = std::unique_ptr<Probe>(new Probe(target, std::move(thread)));
    const ops::KvShape shape{1, 1, head_dim, head_dim, kPageSize, static_cast<uint32_t>(pages), dtype};
    HEADWATER_ASSIGN_OR_RETURN(probe->kv_, CpuKvPool::create(shape));
    auto& kv = static_cast<CpuKvPool&>(*probe->kv_);
    for (PageId page = 0; page < pages; ++page) std::memset(kv.page(0, page), 0x3c, kv.page_bytes());  // small numbers
    const ops::StepLimits limits{.sequences_max = kRowsMax,
                                 .tokens_max = kRowsMax,
                                 .pages_per_sequence_max = kCut * kStates / kPageSize,
                                 .page_size = kPageSize};
    HEADWATER_RETURN_IF_ERROR(probe->attention_.reserve(limits, shape, 1));
    HEADWATER_ASSIGN_OR_RETURN(probe->memory_, Buffer::create(2 * uint64_t{kRowsMax} * head_dim * sizeof(float)));
    probe->prepare(head_dim);
    return probe;
  }

  // Items of `rows` x `keys` from the first page on; `rounds` times over the same items.
  void attend(uint32_t rows, uint32_t keys, uint32_t items, uint32_t rounds) {
    items_.resize(items);
    for (uint32_t i = 0; i < items; ++i) {
      items_[i] = {0, rows, i * (keys / kPageSize), 0, keys, 0, attention::kFold | attention::kDirect};
    }
    batch_.plan.items = items_;
    for (uint32_t round = 0; round < rounds; ++round) attention_.attend(params_);
  }
  void merge(uint32_t rounds) {
    for (uint32_t round = 0; round < rounds; ++round) attention_.merge(params_);
  }

 private:
  Probe(Target target, std::unique_ptr<ThreadPool> thread) : thread_(std::move(thread)), attention_(target, *thread_) {}

  void prepare(uint32_t head_dim) {
    const uint32_t pages = kv_->shape().pages;
    for (PageId page = 0; page < pages; ++page) page_ids_.push_back(page);
    for (uint32_t token = 0; token < kRowsMax; ++token) {
      order_.push_back(token);
      positions_.push_back(1u << 20);
      merge_indptr_.push_back(token * kStates);
      for (uint32_t state = 0; state < kStates; ++state) merge_slots_.push_back(token + state * kRowsMax);
    }
    merge_indptr_.push_back(kRowsMax * kStates);
    empty_.resize(kRowsMax);
    batch_.tokens = kRowsMax;
    batch_.page_ids = page_ids_;
    batch_.plan.token_order = order_;
    batch_.plan.token_position = positions_;
    batch_.plan.merge_indptr = merge_indptr_;
    batch_.plan.merge_slots = merge_slots_;
    batch_.plan.token_empty = empty_;
    batch_.plan.partials = kRowsMax * kStates;
    batch_.plan.cut = kCut;
    float* data = memory_.as<float>().data();
    std::fill_n(data, uint64_t{kRowsMax} * head_dim, 0.01f);
    params_.q = {data, kRowsMax, head_dim, head_dim};
    params_.out = {data + uint64_t{kRowsMax} * head_dim, kRowsMax, head_dim, head_dim};
    params_.batch = &batch_;
    params_.pool = kv_.get();
    params_.layer = 0;
    params_.q_heads = 1;
    params_.variant.scale = 1.0f / std::sqrt(static_cast<float>(head_dim));
  }

  std::unique_ptr<ThreadPool> thread_;
  Attention attention_;
  std::unique_ptr<ops::KvPool> kv_;
  Buffer memory_;
  std::vector<uint32_t> order_, positions_, merge_indptr_, merge_slots_;
  std::vector<PageId> page_ids_;
  std::vector<uint8_t> empty_;
  std::vector<attention::WorkItem> items_;
  ops::DeviceBatch batch_;
  ops::AttentionParams params_;
};

class Measurement {
 public:
  Measurement(Target target, ThreadPool& pool, double seconds) : target_(target), pool_(pool) {
    constexpr size_t kPoints = kDtypes.size() * (kWidths.size() * (2 * kRows.size() + 1) + kReadKib.size() + 1);
    slice_ns_ = static_cast<int64_t>(seconds * 1e9 / kPoints);
  }

  Result<AttentionCosts> run() {
    AttentionCosts costs = built_in_costs(target_);
    costs.gain_min = kGainMin;
    for (const DType dtype : kDtypes) {
      ElementCosts& element = dtype == DType::kBF16 ? costs.bf16 : dtype == DType::kF16 ? costs.f16 : costs.f32;
      HEADWATER_RETURN_IF_ERROR(measure_items(dtype, element));
      HEADWATER_RETURN_IF_ERROR(measure_reads(dtype, element));
    }
    measure_step(costs);
    return costs;
  }

 private:
  static constexpr double kGainMin = 0.03;
  using Probes = std::vector<std::unique_ptr<Probe>>;

  Result<Probes> probes(DType dtype, uint32_t head_dim, uint64_t pages) const {
    Probes probes;
    for (uint32_t worker = 0; worker < pool_.size(); ++worker) {
      HEADWATER_ASSIGN_OR_RETURN(auto probe, Probe::create(target_, dtype, head_dim, pages));
      probes.push_back(std::move(probe));
    }
    return probes;
  }

  // Nanoseconds of f(worker, rounds) a round while all workers run it, in their own processor time: what other programs
  // take away does not count. The slowest worker of a region, the lower quartile of the regions in the time slice.
  template <typename F>
  double time(F&& f) const {
    constexpr double kRegionNs = 200'000;  // beside it reading the clock is nothing
    std::vector<double> worker_ns(pool_.size());
    const auto region = [&](uint32_t rounds) {
      pool_.run(pool_.size(), [&](uint32_t task, uint32_t) {
        const double begin = thread_ns();
        f(task, rounds);
        worker_ns[task] = thread_ns() - begin;
      });
      return *std::max_element(worker_ns.begin(), worker_ns.end()) / rounds;
    };
    const SystemClock clock;
    const int64_t end = clock.now_ns() + slice_ns_;
    const auto rounds = static_cast<uint32_t>(std::clamp(kRegionNs / std::max(1.0, region(1)), 1.0, 1000.0));
    std::vector<double> times;
    do {
      times.push_back(region(rounds));
    } while (times.size() < 2 || clock.now_ns() < end);
    const auto quartile = times.begin() + static_cast<ptrdiff_t>(times.size() / 4);
    std::nth_element(times.begin(), quartile, times.end());
    return *quartile;
  }

  Status measure_items(DType dtype, ElementCosts& costs) const {
    const uint32_t tile = rows_tile(target_, dtype);
    std::vector<TimedItem> items;
    std::array<double, kWidths.size()> merge_ns{};
    for (size_t w = 0; w < kWidths.size(); ++w) {
      const uint32_t head_dim = kWidths[w];
      const uint32_t warm = kWarmKib * 1024 / (2 * head_dim * block_bytes(dtype));
      HEADWATER_ASSIGN_OR_RETURN(const Probes workers, probes(dtype, head_dim, warm / kPageSize));
      for (const uint32_t keys : {128u, std::min(warm, 2 * kCut)}) {
        const uint32_t count = warm / keys;  // in turn, so that keys come from the second level of the cache
        for (const uint32_t rows : kRows) {
          const double ns =
              time([&](uint32_t worker, uint32_t rounds) { workers[worker]->attend(rows, keys, count, rounds); }) /
              count;
          const uint32_t passes = (rows + tile - 1) / tile;
          items.push_back({double(rows), double(passes), double(keys), width_of(head_dim), ns});
        }
      }
      const double ns = time([&](uint32_t worker, uint32_t rounds) { workers[worker]->merge(rounds); });
      merge_ns[w] = ns / (kRowsMax * kStates);
    }
    fit_items(items, costs);
    const double widths = width_of(kWidths.back()) - width_of(kWidths.front());
    costs.partial_width = std::max(0.0, (merge_ns.back() - merge_ns.front()) / widths);
    costs.partial = std::max(0.0, merge_ns.front() - costs.partial_width * width_of(kWidths.front()));
    return {};
  }

  Status measure_reads(DType dtype, ElementCosts& costs) const {
    const uint64_t key_bytes = 2 * kReadWidth * block_bytes(dtype);
    const uint64_t memory_kib = memory_available_bytes() / 4 / pool_.size() / 1024;
    uint64_t largest = kReadKib[0];
    for (const uint32_t kib : kReadKib) largest = kib <= memory_kib ? kib : largest;
    HEADWATER_ASSIGN_OR_RETURN(const Probes workers, probes(dtype, kReadWidth, largest * 1024 / key_bytes / kPageSize));
    const auto key_ns = [&](uint64_t kib) {  // a key when the worker goes round `kib`
      const auto items = static_cast<uint32_t>(kib * 1024 / key_bytes / kReadKeys);
      const double ns =
          time([&](uint32_t worker, uint32_t rounds) { workers[worker]->attend(kReadRows, kReadKeys, items, rounds); });
      return ns / items / kReadKeys;
    };
    const double warm = key_ns(kWarmKib);
    size_t measured = 0;
    for (; measured < kReadKib.size() && kReadKib[measured] <= largest; ++measured) {
      costs.read[measured] = std::max(0.0, key_ns(kReadKib[measured]) - warm) * 1024 / static_cast<double>(key_bytes);
    }
    for (size_t i = measured; i < kReadKib.size(); ++i) costs.read[i] = costs.read[measured - 1];
    // What is farther is never nearer; a disturbance only adds.
    for (size_t i = kReadKib.size() - 1; i-- > 0;) costs.read[i] = std::min(costs.read[i], costs.read[i + 1]);
    return {};
  }

  // The start and end of two regions on all workers; their tasks do next to nothing.
  void measure_step(AttentionCosts& costs) const {
    const SystemClock clock;
    const int64_t start = clock.now_ns();
    std::vector<double> times;
    do {
      const int64_t begin = clock.now_ns();
      for (int region = 0; region < 2; ++region) pool_.run(pool_.size(), [](uint32_t, uint32_t) {});
      times.push_back(static_cast<double>(clock.now_ns() - begin));
    } while (times.size() < 100 || clock.now_ns() - start < slice_ns_);
    std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
    costs.step = times[times.size() / 2];
  }

  const Target target_;
  ThreadPool& pool_;
  int64_t slice_ns_;
};

}  // namespace

Result<AttentionCosts> measure_costs(Target target, ThreadPool& pool, double seconds) {
  return Measurement(target, pool, seconds).run();
}

}  // namespace headwater::backend::cpu
