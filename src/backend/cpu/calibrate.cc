#include "backend/cpu/calibrate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

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
constexpr std::array kDtypes = {DType::kBF16, DType::kF16, DType::kF32, DType::kF8E4M3};
constexpr uint32_t kReadRows = 3;    // a flat decode item of a model with grouped heads
constexpr uint32_t kReadKeys = 512;  // of an item
constexpr uint32_t kReadWidth = 64;

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
    batch_.plans[0].items = items_;
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
    batch_.plans[0].token_order = order_;
    batch_.plans[0].token_position = positions_;
    batch_.plans[0].merge_indptr = merge_indptr_;
    batch_.plans[0].merge_slots = merge_slots_;
    batch_.plans[0].token_empty = empty_;
    batch_.plans[0].partials = kRowsMax * kStates;
    batch_.plans[0].cut = kCut;
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

// Work that is timed: work(worker, rounds) runs on every worker at once.
struct Timing {
  std::function<void(uint32_t worker, uint32_t rounds)> work;
  uint32_t rounds = 0;
  std::vector<double> ns = {};  // a round

  // The lower quartile, since other programs only add.
  double quartile() {
    const auto at = ns.begin() + static_cast<ptrdiff_t>(ns.size() / 4);
    std::nth_element(ns.begin(), at, ns.end());
    return std::max(1.0, *at);
  }
};

class Measurement {
 public:
  Measurement(Target target, ThreadPool& pool, double seconds) : target_(target), pool_(pool) {
    constexpr size_t kTimings = kDtypes.size() * (kWidths.size() * (2 * kRows.size() + 1) + kReadKib.size() + 1);
    slice_ns_ = static_cast<int64_t>(seconds * 1e9 / (kTimings * kPasses));
  }

  Result<AttentionCosts> run() {
    AttentionCosts costs;
    for (const DType dtype : kDtypes) {
      HEADWATER_RETURN_IF_ERROR(measure(dtype, costs.of(dtype)));
    }
    measure_step(costs);
    return costs;
  }

 private:
  static constexpr uint32_t kPasses = 3;  // over all timings of an element type: a busy moment meets them alike
  using Probes = std::vector<std::unique_ptr<Probe>>;

  Result<Probes> probes(DType dtype, uint32_t head_dim, uint64_t pages) const {
    Probes probes;
    for (uint32_t worker = 0; worker < pool_.size(); ++worker) {
      HEADWATER_ASSIGN_OR_RETURN(auto probe, Probe::create(target_, dtype, head_dim, pages));
      probes.push_back(std::move(probe));
    }
    return probes;
  }

  // Wall time, not the workers' own: two workers that share a core take their time from each other, and a worker that has
  // to wait leaves its part to the others, which is no faster.
  void time(Timing& timing) const {
    constexpr double kRegionNs = 100'000;  // beside it the start of a region is nothing
    const SystemClock clock;
    const auto region = [&](uint32_t rounds) {
      const int64_t begin = clock.now_ns();
      pool_.run(pool_.size(), [&](uint32_t task, uint32_t) { timing.work(task, rounds); });
      return static_cast<double>(clock.now_ns() - begin) / rounds;
    };
    const int64_t end = clock.now_ns() + slice_ns_;
    const double once = region(1);
    if (timing.rounds == 0)
      timing.rounds = static_cast<uint32_t>(std::clamp(kRegionNs / std::max(1.0, once), 1.0, 1e3));
    do {
      timing.ns.push_back(region(timing.rounds));
    } while (clock.now_ns() < end);
  }

  Status measure(DType dtype, ElementCosts& costs) const {
    std::vector<TimedItem> items;
    std::vector<Timing> item_timings, merge_timings, read_timings;
    std::vector<Probes> workers;
    workers.reserve(kWidths.size() + 1);
    for (const uint32_t head_dim : kWidths) {
      const uint32_t warm = kWarmKib * 1024 / (2 * head_dim * block_bytes(dtype));
      HEADWATER_ASSIGN_OR_RETURN(workers.emplace_back(), probes(dtype, head_dim, warm / kPageSize));
      add_items(workers.back(), dtype, head_dim, warm, items, item_timings);
      merge_timings.push_back(
          {[&at = workers.back()](uint32_t worker, uint32_t rounds) { at[worker]->merge(rounds); }});
    }
    const uint64_t key_bytes = 2 * kReadWidth * block_bytes(dtype);
    const uint64_t largest = largest_distance_kib();
    HEADWATER_ASSIGN_OR_RETURN(workers.emplace_back(),
                               probes(dtype, kReadWidth, largest * 1024 / key_bytes / kPageSize));
    add_reads(workers.back(), key_bytes, largest, read_timings);
    for (uint32_t pass = 0; pass < kPasses; ++pass) {
      for (std::vector<Timing>* timings : {&item_timings, &merge_timings, &read_timings}) {
        for (Timing& timing : *timings) time(timing);
      }
    }
    for (size_t i = 0; i < items.size(); ++i) items[i].ns = item_timings[i].quartile() / items[i].ns;
    fit_items(items, costs);
    fit_partial(merge_timings, costs);
    fit_reads(read_timings, key_bytes, costs);
    return {};
  }

  // `ns` of an item holds how many of them a round runs, until it is timed.
  void add_items(const Probes& workers, DType dtype, uint32_t head_dim, uint32_t warm, std::vector<TimedItem>& items,
                 std::vector<Timing>& timings) const {
    const uint32_t tile = rows_tile(target_, dtype);
    for (const uint32_t keys : {128u, std::min(warm, 2 * kCut)}) {
      const uint32_t count = warm / keys;  // in turn, so that keys come from the second level of the cache
      for (const uint32_t rows : kRows) {
        const uint32_t passes = (rows + tile - 1) / tile;
        items.push_back({double(rows), double(passes), double(keys), width_of(head_dim), double(count)});
        timings.push_back({[&workers, rows, keys, count](uint32_t worker, uint32_t rounds) {
          workers[worker]->attend(rows, keys, count, rounds);
        }});
      }
    }
  }

  uint64_t largest_distance_kib() const {
    const uint64_t memory_kib = memory_available_bytes() / 4 / pool_.size() / 1024;
    uint64_t largest = kReadKib[0];
    for (const uint32_t kib : kReadKib) largest = kib <= memory_kib ? kib : largest;
    return largest;
  }

  // Rounds over the warm distance, then over every distance that there is memory for.
  static void add_reads(const Probes& workers, uint64_t key_bytes, uint64_t largest, std::vector<Timing>& timings) {
    const auto add = [&](uint64_t kib) {
      const auto items = static_cast<uint32_t>(kib * 1024 / key_bytes / kReadKeys);
      timings.push_back({[&workers, items](uint32_t worker, uint32_t rounds) {
        workers[worker]->attend(kReadRows, kReadKeys, items, rounds);
      }});
    };
    add(kWarmKib);
    for (const uint32_t kib : kReadKib) {
      if (kib <= largest) add(kib);
    }
  }

  static void fit_partial(std::vector<Timing>& merges, ElementCosts& costs) {
    const double first = merges.front().quartile() / (kRowsMax * kStates);
    const double last = merges.back().quartile() / (kRowsMax * kStates);
    costs.partial_width = std::max(0.0, (last - first) / (width_of(kWidths.back()) - width_of(kWidths.front())));
    costs.partial = std::max(0.0, first - costs.partial_width * width_of(kWidths.front()));
  }

  static void fit_reads(std::vector<Timing>& reads, uint64_t key_bytes, ElementCosts& costs) {
    const auto ns_kib = [&](size_t timing, uint32_t kib) {  // arithmetic included
      const uint64_t items = kib * 1024 / key_bytes / kReadKeys;
      return reads[timing].quartile() * 1024 / static_cast<double>(items * kReadKeys * key_bytes);
    };
    const double warm = ns_kib(0, kWarmKib);
    for (size_t i = 0; i < kReadKib.size(); ++i) {
      costs.read[i] = i + 1 < reads.size() ? std::max(0.0, ns_kib(i + 1, kReadKib[i]) - warm) : costs.read[i - 1];
    }
    // What is farther is never nearer; a disturbance only adds.
    for (size_t i = kReadKib.size() - 1; i-- > 0;) costs.read[i] = std::min(costs.read[i], costs.read[i + 1]);
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
