#include "bench/attention_cell.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "bench/attention_bound.h"

namespace headwater::bench {
namespace {

namespace json = boost::json;
using attention::Outcome;
using attention::Sharing;

double seconds_now() {
  static const SystemClock clock;
  return static_cast<double>(clock.now_ns()) * 1e-9;
}

bool same_items(const attention::Plan& a, const attention::Plan& b) {
  const auto same = [](const attention::WorkItem& x, const attention::WorkItem& y) {
    return x.token_begin == y.token_begin && x.token_count == y.token_count && x.page_begin == y.page_begin &&
           x.key_begin == y.key_begin && x.key_count == y.key_count && x.flags == y.flags;
  };
  return std::ranges::equal(a.items, b.items, same) && std::ranges::equal(a.token_order, b.token_order);
}

std::vector<float> random_values(uint64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = random.normal();
  return values;
}

json::object cell_fields(const ops::Backend& backend, const Cell& cell) {
  return {{"cell", cell.name},
          {"batch", cell.batch()},
          {"shared", cell.shared()},
          {"tail", cell.tail()},
          {"q_heads", cell.q_heads},
          {"kv_heads", cell.kv_heads},
          {"head_dim", cell.head_dim},
          {"page", cell.page},
          {"q_len", cell.q_len},
          {"dtype", to_string(cell.dtype)},
          {"backend", backend.info().name},
          {"target", backend.info().target},
          {"invariant", backend.info().invariant}};
}

}  // namespace

CellBench::CellBench(ops::Backend& backend, Matrices& matrices, const AttentionBenchOptions& options, const Cell& cell)
    : backend_(backend), matrices_(matrices), options_(options), work_(Workload::create(cell)) {
  matrices_.clear();
}

Status CellBench::prepare() {
  const Cell& cell = work_.cell;
  HEADWATER_ASSIGN_OR_RETURN(pool_, backend_.create_kv_pool(work_.kv_shape()));
  HEADWATER_RETURN_IF_ERROR(
      backend_.reserve_scratch(work_.limits(backend_.info().workers), work_.kv_shape(), cell.q_heads, 1));
  HEADWATER_RETURN_IF_ERROR(fill_pool(backend_, matrices_, *pool_, work_, 1));
  const uint32_t tokens = work_.q_indptr.back();
  HEADWATER_ASSIGN_OR_RETURN(q_, matrices_.take(tokens, cell.q_heads * cell.head_dim));
  HEADWATER_RETURN_IF_ERROR(backend_.upload(q_, random_values(uint64_t{tokens} * q_.columns, 2)));
  if (cell.sinks) {
    HEADWATER_ASSIGN_OR_RETURN(sinks_, matrices_.take(1, cell.q_heads));
    HEADWATER_RETURN_IF_ERROR(backend_.upload(sinks_, random_values(cell.q_heads, 4)));
  }
  HEADWATER_RETURN_IF_ERROR(add_arm("auto", Sharing::kAuto));
  HEADWATER_RETURN_IF_ERROR(add_arm("off", options_.mislabel ? Sharing::kAlways : Sharing::kOff));
  if (options_.always) HEADWATER_RETURN_IF_ERROR(add_arm("always", Sharing::kAlways));
  return {};
}

Status CellBench::add_arm(const char* name, Sharing sharing) {
  const Cell& cell = work_.cell;
  const ops::KvShape kv = work_.kv_shape();
  attention::PlanSettings settings;
  settings.sharing = sharing;
  settings.invariant = options_.invariant && backend_.info().invariant;
  settings.cut = backend_.info().cut;
  settings.window = cell.window;
  HEADWATER_ASSIGN_OR_RETURN(
      attention::Planner planner,
      attention::Planner::create(work_.limits(backend_.info().workers).plan_limits(), settings,
                                 backend_.cost_model(kv, cell.q_heads), backend_.device_shape(kv, cell.q_heads)));
  HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock block, backend_.create_step_block(work_.limits(backend_.info().workers)));
  Arm arm{.name = name, .sharing = sharing, .planner = std::move(planner), .block = std::move(block)};
  HEADWATER_ASSIGN_OR_RETURN(arm.out, matrices_.take(work_.q_indptr.back(), cell.q_heads * cell.head_dim));
  HEADWATER_RETURN_IF_ERROR(plan(arm));
  arms_.push_back(std::move(arm));
  return {};
}

Status CellBench::plan(Arm& arm) {
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
  return {};
}

Status CellBench::check_outcomes() const {
  const auto is_flat = [](const Arm& arm) { return arm.outcome.path == attention::Path::kFlat; };
  const Cell& cell = work_.cell;
  if (!is_flat(arms_[1]))
    return error(ErrorCode::kInternal, "{}: the arm 'off' took the path {}", cell.name,
                 to_string(arms_[1].outcome.path));
  if (options_.expect_shared && is_flat(arms_[0]) && cell.batch() >= 4 && cell.shared() >= 2048) {
    return error(ErrorCode::kInternal, "{}: the arm 'auto' ran flat ({})", cell.name,
                 to_string(arms_[0].outcome.reason()));
  }
  if (options_.always && is_flat(arms_[2]) && cell.batch() > 1 && cell.tokens[0] >= arms_[2].planner.settings().cut) {
    return error(ErrorCode::kInternal, "{}: the arm 'always' ran flat ({})", cell.name,
                 to_string(arms_[2].outcome.reason()));
  }
  return {};
}

Status CellBench::check_arms(CellResult& result) {
  HEADWATER_RETURN_IF_ERROR(check_outcomes());
  std::vector<std::vector<float>> outs;
  for (Arm& arm : arms_) {
    HEADWATER_ASSIGN_OR_RETURN(std::vector<float> out, run_once(arm));
    outs.push_back(std::move(out));
  }
  for (const std::vector<float>& out : outs) {
    for (size_t i = 0; i < out.size(); ++i) {
      const double difference = std::abs(static_cast<double>(out[i]) - static_cast<double>(outs[1][i]));
      if (!(difference <= result.max_abs_diff)) result.max_abs_diff = difference;  // NaN counts
    }
  }
  const double tolerance = arms_[0].planner.settings().invariant ? 0 : 5e-3;
  if (!(result.max_abs_diff <= tolerance)) {
    return error(ErrorCode::kInternal, "{}: the outputs of the arms differ by {:.3g}; allowed {:.3g}", work_.cell.name,
                 result.max_abs_diff, tolerance);
  }
  result.identical = same_items(arms_[0].block.host_batch().plans[0], arms_[1].block.host_batch().plans[0]);
  return {};
}

// The output, which begins as NaN.
Result<std::vector<float>> CellBench::run_once(Arm& arm) {
  std::vector<float> out(uint64_t{arm.out.rows} * arm.out.columns, std::numeric_limits<float>::quiet_NaN());
  HEADWATER_RETURN_IF_ERROR(backend_.upload(arm.out, out));
  HEADWATER_ASSIGN_OR_RETURN(arm.batch, backend_.begin_step(arm.block));
  enqueue(arm);
  HEADWATER_RETURN_IF_ERROR(backend_.finish());
  HEADWATER_RETURN_IF_ERROR(backend_.download(out, arm.out));
  return out;
}

void CellBench::enqueue(const Arm& arm) {
  const Cell& cell = work_.cell;
  const ops::AttentionParams params{
      q_,           arm.out,
      nullptr,      &arm.batch,
      pool_.get(),  0,
      cell.q_heads, {1.0f / std::sqrt(static_cast<float>(cell.head_dim)), cell.softcap, sinks_.data}};
  for (uint32_t step = 0; step < options_.steps; ++step) {
    backend_.attend(params);
    backend_.merge(params);
  }
}

// A device has room for one step: the arm's goes there first.
Result<double> CellBench::sample(Arm& arm, ops::Stopwatch& stopwatch) {
  HEADWATER_ASSIGN_OR_RETURN(arm.batch, backend_.begin_step(arm.block));
  HEADWATER_ASSIGN_OR_RETURN(const double us, stopwatch.sample_us());
  return us / options_.steps;
}

Status CellBench::measure(CellResult& result) {
  for (Arm& arm : arms_) {
    HEADWATER_ASSIGN_OR_RETURN(arm.batch, backend_.begin_step(arm.block));
    HEADWATER_ASSIGN_OR_RETURN(arm.cold, backend_.create_stopwatch([this, &arm] { enqueue(arm); }, true));
    for (uint32_t i = 0; i < options_.warmup; ++i) HEADWATER_RETURN_IF_ERROR(sample(arm, *arm.cold).status());
  }
  std::vector<double> ratios;
  while (ratios.size() < options_.reps_max) {
    for (Arm& arm : arms_) {
      HEADWATER_ASSIGN_OR_RETURN(const double us, sample(arm, *arm.cold));
      arm.us.push_back(us);
    }
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
  return options_.warm ? measure_warm() : Status();
}

Status CellBench::measure_warm() {
  for (Arm& arm : arms_) {
    HEADWATER_ASSIGN_OR_RETURN(arm.batch, backend_.begin_step(arm.block));
    HEADWATER_ASSIGN_OR_RETURN(arm.warm, backend_.create_stopwatch([this, &arm] { enqueue(arm); }, false));
  }
  for (uint32_t i = 0; i < options_.reps; ++i) {
    for (Arm& arm : arms_) {
      HEADWATER_ASSIGN_OR_RETURN(const double us, sample(arm, *arm.warm));
      arm.warm_us.push_back(us);
    }
  }
  return {};
}

Result<std::vector<json::object>> CellBench::lines(CellResult& result, const ops::Peaks& peaks) {
  std::vector<json::object> lines;
  for (const Arm& arm : arms_) {
    lines.push_back(line(arm, result));
    if (peaks.multiply_adds_per_s == 0) continue;
    HEADWATER_ASSIGN_OR_RETURN(const double bound, bound_us(arm, peaks));
    lines.back()["bound_us"] = bound;
    if (lines.size() == 1) result.bound_us = bound;
  }
  return lines;
}

Result<double> CellBench::bound_us(const Arm& arm, const ops::Peaks& peaks) {
  const AttentionWork work = planned_work(arm.outcome, work_.token_keys(), work_.cell.page, work_.cell.q_len);
  const ops::KvShape kv = work_.kv_shape();
  const auto page_bytes = static_cast<uint32_t>(kv.bytes_token_layer() / kv.kv_heads * kv.page_size);
  HEADWATER_ASSIGN_OR_RETURN(const double floor_us, backend_.read_floor_us(work.bytes_unique, page_bytes));
  const AttentionBound bound = floor_us > 0 ? device_bound(work, kv, work_.cell.q_heads, peaks, floor_us)
                                            : attention_bound(work, kv, work_.cell.q_heads, peaks);
  return bound.seconds() * 1e6;
}

json::object CellBench::line(const Arm& arm, const CellResult& result) const {
  const Outcome& o = arm.outcome;
  json::object line = cell_fields(backend_, work_.cell);
  line["invariant"] = arm.planner.settings().invariant;
  line["arm"] = arm.name;
  line["us"] = median(arm.us);
  line["us_min"] = *std::min_element(arm.us.begin(), arm.us.end());
  line["us_max"] = *std::max_element(arm.us.begin(), arm.us.end());
  if (!arm.warm_us.empty()) line["warm_us"] = median(arm.warm_us);
  line["plan_us"] = arm.plan_us;
  line["auto_over_off"] = result.ratio;
  line["path"] = to_string(o.path);
  line["groups"] = o.groups;
  line["members"] = o.members;
  line["shared_pages"] = o.shared_pages;
  line["items"] = o.items;
  line["splits"] = o.splits;
  line["depth"] = o.depth;
  line["reason"] = o.path == attention::Path::kFlat ? to_string(o.reason()) : "";
  line["predicted_us"] = o.predicted_ns * 1e-3;
  line["plan_identical"] = result.identical;
  line["bytes_read"] = o.bytes_read;
  line["bytes_unique"] = o.bytes_unique;
  line["bytes_flat"] = o.bytes_flat;
  line["max_abs_diff"] = result.max_abs_diff;
  return line;
}

json::object skipped_line(const ops::Backend& backend, const Cell& cell, const std::string& why) {
  json::object line = cell_fields(backend, cell);
  line["skipped"] = why;
  return line;
}

}  // namespace headwater::bench
