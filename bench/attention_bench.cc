#include "bench/attention_bench.h"

#include <algorithm>
#include <boost/json.hpp>
#include <cmath>

#include "bench/attention_bound.h"
#include "bench/statistics.h"

namespace headwater::bench {
namespace {

namespace json = boost::json;
using attention::Outcome;
using attention::Sharing;

struct Arm {
  const char* name;
  Sharing sharing;
  attention::Planner planner;
  ops::StepBlock block;
  ops::DeviceBatch batch;
  ops::Matrix out;
  Outcome outcome;
  double plan_us = 0;
  std::vector<double> us;
};

struct CellResult {
  bool identical = false;
  double ratio = 1;  // (plan / L + us) auto over off, median over pairs
  Interval interval{1, 1};
  double max_abs_diff = 0;
};

double seconds_now() {
  static const SystemClock clock;
  return static_cast<double>(clock.now_ns()) * 1e-9;
}

bool same_items(const attention::Plan& a, const attention::Plan& b) {
  return std::equal(a.items.begin(), a.items.end(), b.items.begin(), b.items.end(),
                    [](const attention::WorkItem& x, const attention::WorkItem& y) {
                      return x.token_begin == y.token_begin && x.token_count == y.token_count &&
                             x.page_begin == y.page_begin && x.key_begin == y.key_begin && x.key_count == y.key_count &&
                             x.flags == y.flags;
                    }) &&
         std::equal(a.token_order.begin(), a.token_order.end(), b.token_order.begin(), b.token_order.end());
}

class CellBench {
 public:
  CellBench(ops::Backend& backend, const AttentionBenchOptions& options, const Cell& cell)
      : backend_(backend), options_(options), work_(Workload::create(cell)) {}

  Status prepare() {
    const Cell& cell = work_.cell;
    HEADWATER_ASSIGN_OR_RETURN(pool_, backend_.create_kv_pool(work_.kv_shape()));
    HEADWATER_RETURN_IF_ERROR(backend_.reserve_scratch(work_.limits(), work_.kv_shape(), cell.q_heads, 1));
    HEADWATER_RETURN_IF_ERROR(fill_pool(backend_, *pool_, work_, 1));
    const uint32_t tokens = work_.q_indptr.back();
    HEADWATER_ASSIGN_OR_RETURN(q_, backend_.allocate(tokens, cell.q_heads * cell.head_dim));
    Random random(2);
    for (uint64_t i = 0; i < uint64_t{tokens} * q_.columns; ++i) q_.data[i] = random.normal();
    for (uint32_t head = 0; head < cell.q_heads; ++head) sinks_.push_back(random.normal());
    HEADWATER_RETURN_IF_ERROR(add_arm("auto", Sharing::kAuto));
    HEADWATER_RETURN_IF_ERROR(add_arm("off", options_.mislabel ? Sharing::kAlways : Sharing::kOff));
    if (options_.always) HEADWATER_RETURN_IF_ERROR(add_arm("always", Sharing::kAlways));
    return {};
  }

  // Outcomes as named, outputs equal: before anything is timed.
  Status check_arms(CellResult& result) {
    for (Arm& arm : arms_) run(arm);
    const bool shared_off = arms_[1].outcome.path != attention::Path::kFlat;
    if (shared_off)
      return error(ErrorCode::kInternal, "{}: the arm 'off' took the path {}", work_.cell.name,
                   to_string(arms_[1].outcome.path));
    if (options_.expect_shared && arms_[0].outcome.path == attention::Path::kFlat && work_.cell.batch() >= 4 &&
        work_.cell.shared() >= 2048) {
      return error(ErrorCode::kInternal, "{}: the arm 'auto' ran flat ({})", work_.cell.name,
                   to_string(arms_[0].outcome.reason()));
    }
    if (options_.always && arms_[2].outcome.path == attention::Path::kFlat && work_.cell.batch() > 1 &&
        work_.cell.tokens[0] >= arms_[2].planner.settings().cut) {
      return error(ErrorCode::kInternal, "{}: the arm 'always' ran flat ({})", work_.cell.name,
                   to_string(arms_[2].outcome.reason()));
    }
    for (const Arm& arm : arms_) {
      for (uint64_t i = 0; i < uint64_t{arm.out.rows} * arm.out.columns; ++i) {
        const double difference =
            std::abs(static_cast<double>(arm.out.data[i]) - static_cast<double>(arms_[1].out.data[i]));
        if (!(difference <= result.max_abs_diff)) result.max_abs_diff = difference;  // NaN counts
      }
    }
    const double tolerance = backend_.info().invariant && options_.invariant ? 0 : 5e-3;
    if (!(result.max_abs_diff <= tolerance)) {
      return error(ErrorCode::kInternal, "{}: the outputs of the arms differ by {:.3g}; allowed {:.3g}",
                   work_.cell.name, result.max_abs_diff, tolerance);
    }
    result.identical = same_items(arms_[0].batch.plan, arms_[1].batch.plan);
    return {};
  }

  void measure(CellResult& result) {
    std::vector<double> ratios;
    for (uint32_t i = 0; i < options_.warmup; ++i) {
      for (Arm& arm : arms_) run(arm);
    }
    while (ratios.size() < options_.reps_max) {
      for (Arm& arm : arms_) arm.us.push_back(run(arm));
      const auto total = [&](const Arm& arm) { return arm.us.back() + arm.plan_us / options_.layers; };
      ratios.push_back(total(arms_[0]) / total(arms_[1]));
      if (ratios.size() < options_.reps) continue;
      result.ratio = median(ratios);
      result.interval = median_interval(ratios);
      if (options_.gate == 0 || result.identical) break;
      if (result.interval.high <= options_.gate || result.interval.low > options_.gate) break;
    }
    if (result.identical) {  // the same items: only the cost of looking can differ
      const double us = median(arms_[1].us);
      result.ratio = (us + arms_[0].plan_us / options_.layers) / (us + arms_[1].plan_us / options_.layers);
      result.interval = {result.ratio, result.ratio};
    }
  }

  json::object line(const Arm& arm, const CellResult& result, const ops::Peaks& peaks) const {
    const Cell& cell = work_.cell;
    const Outcome& o = arm.outcome;
    json::object line{{"cell", cell.name},
                      {"batch", cell.batch()},
                      {"shared", cell.shared()},
                      {"tail", cell.tail()},
                      {"q_heads", cell.q_heads},
                      {"kv_heads", cell.kv_heads},
                      {"head_dim", cell.head_dim},
                      {"page", cell.page},
                      {"q_len", cell.q_len},
                      {"dtype", to_string(cell.dtype)},
                      {"backend", backend_.info().name},
                      {"target", backend_.info().target},
                      {"arm", arm.name}};
    line["us"] = median(arm.us);
    line["us_min"] = *std::min_element(arm.us.begin(), arm.us.end());
    line["us_max"] = *std::max_element(arm.us.begin(), arm.us.end());
    line["plan_us"] = arm.plan_us;
    line["path"] = to_string(o.path);
    line["groups"] = o.groups;
    line["members"] = o.members;
    line["shared_pages"] = o.shared_pages;
    line["items"] = o.items;
    line["splits"] = o.splits;
    line["depth"] = o.depth;
    line["reason"] = o.path == attention::Path::kFlat ? to_string(o.reason()) : "";
    line["predicted_us"] = o.predicted_ns * 1e-3;
    if (peaks.multiply_adds_per_s > 0) line["bound_us"] = bound_us(arm, peaks);
    line["plan_identical"] = result.identical;
    line["bytes_read"] = o.bytes_read;
    line["bytes_unique"] = o.bytes_unique;
    line["bytes_flat"] = o.bytes_flat;
    line["max_abs_diff"] = result.max_abs_diff;
    return line;
  }

  double bound_us(const Arm& arm, const ops::Peaks& peaks) const {
    const AttentionWork work = planned_work(arm.outcome, work_.token_keys(), work_.cell.page, work_.cell.q_len);
    return attention_bound_s(work, work_.kv_shape(), work_.cell.q_heads, peaks) * 1e6;
  }
  const std::vector<Arm>& arms() const { return arms_; }
  const Cell& cell() const { return work_.cell; }

 private:
  Status add_arm(const char* name, Sharing sharing) {
    const Cell& cell = work_.cell;
    const ops::KvShape kv = work_.kv_shape();
    attention::PlanSettings settings;
    settings.sharing = sharing;
    settings.invariant = options_.invariant;
    settings.window = cell.window;
    const attention::DeviceShape device{backend_.info().workers, cell.kv_heads, cell.q_heads / cell.kv_heads, 64,
                                        kv.bytes_token_layer()};
    HEADWATER_ASSIGN_OR_RETURN(attention::Planner planner,
                               attention::Planner::create(work_.limits().plan_limits(), settings,
                                                          backend_.cost_model(kv, cell.q_heads), device));
    HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock block, ops::StepBlock::create(work_.limits()));
    Arm arm{name, sharing, std::move(planner), std::move(block), {}, {}, {}, 0, {}};
    HEADWATER_ASSIGN_OR_RETURN(arm.out, backend_.allocate(work_.q_indptr.back(), cell.q_heads * cell.head_dim));
    HEADWATER_RETURN_IF_ERROR(plan(arm));
    arms_.push_back(std::move(arm));
    return {};
  }

  Status plan(Arm& arm) {
    std::vector<double> plan_us;
    const attention::Plan* plan = nullptr;
    for (int i = 0; i < 9; ++i) {
      const double begin = seconds_now();
      HEADWATER_ASSIGN_OR_RETURN(plan, arm.planner.plan_from_scratch(work_.table()));
      plan_us.push_back((seconds_now() - begin) * 1e6);
    }
    arm.plan_us = median(plan_us);
    arm.outcome = plan->outcome;
    arm.block.layout(static_cast<uint32_t>(work_.kv_len.size()), work_.q_indptr.back(), 0,
                     static_cast<uint32_t>(work_.page_ids.size()));
    std::copy(work_.page_ids.begin(), work_.page_ids.end(), arm.block.page_ids().begin());
    if (options_.inject_fault && arm.sharing == Sharing::kAuto && work_.page_ids.size() > 1) {
      arm.block.page_ids()[0] = arm.block.page_ids().back();
    }
    arm.block.set_plan(*plan);
    HEADWATER_ASSIGN_OR_RETURN(arm.batch, backend_.begin_step(arm.block));
    return {};
  }

  double run(Arm& arm) {
    const Cell& cell = work_.cell;
    const ops::AttentionParams params{
        q_,
        arm.out,
        nullptr,
        &arm.batch,
        pool_.get(),
        0,
        cell.q_heads,
        {1.0f / std::sqrt(static_cast<float>(cell.head_dim)), cell.softcap, cell.sinks ? sinks_.data() : nullptr}};
    const double begin = seconds_now();
    for (uint32_t step = 0; step < options_.steps; ++step) {
      backend_.attend(params);
      backend_.merge(params);
    }
    check(backend_.finish().is_ok(), "attention failed");
    return (seconds_now() - begin) * 1e6 / options_.steps;
  }

  ops::Backend& backend_;
  const AttentionBenchOptions& options_;
  Workload work_;
  std::unique_ptr<ops::KvPool> pool_;
  ops::Matrix q_;
  std::vector<float> sinks_;
  std::vector<Arm> arms_;
};

struct Totals {
  uint32_t cells = 0, skipped = 0, failed = 0;
  double worst = 0, log_sum = 0;
  std::string worst_cell;
  std::vector<double> predicted_errors;  // relative, one a cell and arm
};

Status run_cell(ops::Backend& backend, const AttentionBenchOptions& options, const Cell& cell, const ops::Peaks& peaks,
                std::ostream* table, std::ostream* out, Totals& totals) {
  CellBench bench(backend, options, cell);
  CellResult result;
  HEADWATER_RETURN_IF_ERROR(bench.prepare());
  HEADWATER_RETURN_IF_ERROR(bench.check_arms(result));
  bench.measure(result);
  const auto& arms = bench.arms();
  const bool failed = options.gate > 0 && result.ratio > options.gate;
  ++totals.cells;
  totals.failed += failed;
  totals.log_sum += std::log(median(arms[1].us) / median(arms[0].us));
  if (result.ratio > totals.worst) {
    totals.worst = result.ratio;
    totals.worst_cell = cell.name;
  }
  const auto predicted = [](const Arm& arm) { return arm.outcome.predicted_ns * 1e-3 / median(arm.us); };
  for (const Arm& arm : arms) totals.predicted_errors.push_back(std::abs(predicted(arm) - 1));
  if (table != nullptr) {
    const Outcome& o = arms[0].outcome;
    *table << fmt::format(
        "{:<40} {:>10.1f} {:>10.1f} {:>7.3f} [{:.3f}, {:.3f}] {:>5.2f} {:>5.2f} {:<7}{:>3} groups {:>4} members depth "
        "{} plan {:.1f} "
        "us{}{}\n",
        cell.name, median(arms[0].us), median(arms[1].us), result.ratio, result.interval.low, result.interval.high,
        predicted(arms[0]), predicted(arms[1]), to_string(o.path), o.groups, o.members, o.depth, arms[0].plan_us,
        result.identical ? ", same items" : "", failed ? "  ABOVE THE GATE" : "");
    table->flush();
  }
  if (out != nullptr) {
    for (const Arm& arm : arms) *out << json::serialize(bench.line(arm, result, peaks)) << '\n';
  }
  return {};
}

}  // namespace

Status run_attention_bench(ops::Backend& backend, const AttentionBenchOptions& options, std::ostream* table,
                           std::ostream* out) {
  const double begin = seconds_now();
  const uint32_t group = options.cells.empty() ? 1 : options.cells[0].q_heads / options.cells[0].kv_heads;
  const ops::Peaks peaks = backend.measure_peaks(group);
  const uint64_t pool_bytes_max = options.pool_bytes_max > 0 ? options.pool_bytes_max : memory_available_bytes() / 2;
  if (table != nullptr) {
    *table << fmt::format(
        "backend {} ({}), {} workers, costs {}; peaks {:.0f} G multiply-adds/s, {:.0f} GB/s cache, {:.1f} GB/s "
        "memory\n",
        backend.info().name, backend.info().target, backend.info().workers, options.costs,
        peaks.multiply_adds_per_s / 1e9, peaks.cache_bytes_per_s / 1e9, peaks.memory_bytes_per_s / 1e9);
    *table << fmt::format("{:<40} {:>10} {:>10} {:>7} {:<14} {}\n", "cell", "auto us", "off us", "ratio", "",
                          "predicted / us: auto, off");
  }
  Totals totals;
  for (size_t index = options.shard; index < options.cells.size(); index += options.shards) {
    const Cell& cell = options.cells[index];
    const uint64_t bytes = Workload::create(cell).kv_shape().bytes();
    if ((options.seconds_max > 0 && seconds_now() - begin > options.seconds_max) || bytes > pool_bytes_max) {
      ++totals.skipped;
      continue;
    }
    HEADWATER_RETURN_IF_ERROR(run_cell(backend, options, cell, peaks, table, out, totals));
  }
  const double geomean = totals.cells == 0 ? 0 : std::exp(totals.log_sum / totals.cells);
  const double predicted_error = totals.predicted_errors.empty() ? 0 : median(totals.predicted_errors);
  if (table != nullptr) {
    *table << fmt::format(
        "{} cells, {} skipped; worst auto / off {:.3f} ({}); geometric mean off / auto {:.3f}; median error of the "
        "predicted time {:.0f}%\n",
        totals.cells, totals.skipped, totals.worst, totals.worst_cell, geomean, 100 * predicted_error);
  }
  if (out != nullptr) {
    *out << json::serialize(json::object{{"cells", totals.cells},
                                         {"skipped", totals.skipped},
                                         {"worst_auto_over_off", totals.worst},
                                         {"worst_cell", totals.worst_cell},
                                         {"geomean_off_over_auto", geomean},
                                         {"predicted_error_median", predicted_error},
                                         {"costs", options.costs},
                                         {"gate", options.gate},
                                         {"failed", totals.failed},
                                         {"commit", options.commit},
                                         {"summary", true}})
         << std::endl;
  }
  if (totals.failed > 0)
    return error(ErrorCode::kInternal, "{} cells are above the gate {}", totals.failed, options.gate);
  if (options.gate > 0 && totals.skipped > 0) {
    return error(ErrorCode::kInternal,
                 "{} cells were skipped; a gate needs all of them (raise --max-seconds or use --shard)",
                 totals.skipped);
  }
  return {};
}

}  // namespace headwater::bench
