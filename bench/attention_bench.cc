#include "bench/attention_bench.h"

#include "bench/attention_cell.h"
#include "bench/attention_record.h"

namespace headwater::bench {
namespace {

namespace json = boost::json;

class GridBench {
 public:
  GridBench(ops::Backend& backend, const AttentionBenchOptions& options, std::ostream* table, std::ostream* out)
      : backend_(backend),
        options_(options),
        table_(table),
        out_(out),
        matrices_(backend),
        record_({{"backend", backend.info().name},
                 {"device", backend.info().device},
                 {"commit", options.commit},
                 {"costs", options.costs},
                 {"gate", options.gate}}) {}

  Status run() {
    const uint32_t group = options_.cells.empty() ? 1 : options_.cells[0].q_heads / options_.cells[0].kv_heads;
    HEADWATER_ASSIGN_OR_RETURN(peaks_, backend_.measure_peaks(group));
    print_head();
    for (size_t index = options_.shard; index < options_.cells.size(); index += options_.shards) {
      HEADWATER_RETURN_IF_ERROR(run_cell(options_.cells[index]));
    }
    print_totals();
    return gate_holds(record_);
  }

 private:
  double seconds() const { return static_cast<double>(clock_.now_ns() - begin_ns_) * 1e-9; }

  Status run_cell(const Cell& cell) {
    if (options_.seconds_max > 0 && seconds() > options_.seconds_max) return skip(cell, "the time was over");
    const uint64_t bytes_max = options_.pool_bytes_max > 0 ? options_.pool_bytes_max : memory_available_bytes() / 2;
    if (Workload::create(cell).kv_shape().bytes() > bytes_max) return skip(cell, "its pages take too much memory");
    CellBench bench(backend_, matrices_, options_, cell);
    if (const Status status = bench.prepare(); !status) {
      const bool is_refused = status.code() == ErrorCode::kUnsupported || status.code() == ErrorCode::kExhausted;
      return is_refused ? skip(cell, status.message()) : status;
    }
    CellResult result;
    HEADWATER_RETURN_IF_ERROR(bench.check_arms(result));
    HEADWATER_RETURN_IF_ERROR(bench.measure(result));
    HEADWATER_ASSIGN_OR_RETURN(std::vector<json::object> lines, bench.lines(result, peaks_));
    print_cell(cell, bench.arms(), result);
    keep(std::move(lines));
    return {};
  }

  Status skip(const Cell& cell, const std::string& why) {
    if (table_ != nullptr) *table_ << fmt::format("{:<40} skipped: {}\n", cell.name, why);
    keep({skipped_line(backend_, cell, why)});
    return {};
  }

  void keep(std::vector<json::object> lines) {
    if (out_ != nullptr) {
      for (const json::object& line : lines) *out_ << json::serialize(line) << '\n';
      out_->flush();
    }
    record_.set(std::move(lines));
  }

  void print_head() {
    if (table_ == nullptr) return;
    *table_ << fmt::format(
        "backend {} ({}), {} workers, costs {}; peaks {:.0f} G multiply-adds/s, {:.0f} GB/s cache, {:.1f} GB/s "
        "memory\n",
        backend_.info().name, backend_.info().target, backend_.info().workers, options_.costs,
        peaks_.multiply_adds_per_s / 1e9, peaks_.cache_bytes_per_s / 1e9, peaks_.memory_bytes_per_s / 1e9);
    *table_ << fmt::format("{:<40} {:>10} {:>10} {:>7} {:<14} {:>6} {}\n", "cell", "auto us", "off us", "ratio", "",
                           "bound", "predicted / us: auto, off");
  }

  void print_cell(const Cell& cell, const std::vector<Arm>& arms, const CellResult& result) {
    if (table_ == nullptr) return;
    const attention::Outcome& o = arms[0].outcome;
    const double us = median(arms[0].us);
    const auto predicted = [](const Arm& arm) { return arm.outcome.predicted_ns * 1e-3 / median(arm.us); };
    const bool warm = !arms[0].warm_us.empty();
    *table_ << fmt::format(
        "{:<40} {:>10.1f} {:>10.1f} {:>7.3f} [{:.3f}, {:.3f}] {:>5.0f}% {:>5.2f} {:>5.2f} {:<7}{:>3} groups {:>4} "
        "members depth {} plan {:.1f} us{}{}{}\n",
        cell.name, us, median(arms[1].us), result.ratio, result.interval.low, result.interval.high,
        100 * result.bound_us / us, predicted(arms[0]), predicted(arms[1]), to_string(o.path), o.groups, o.members,
        o.depth, arms[0].plan_us,
        warm ? fmt::format(", warm {:.1f} and {:.1f} us", median(arms[0].warm_us), median(arms[1].warm_us)) : "",
        result.identical ? ", same items" : "",
        options_.gate > 0 && result.ratio > options_.gate ? "  ABOVE THE GATE" : "");
    table_->flush();
  }

  void print_totals() {
    const AttentionRecord::Totals t = record_.totals();
    if (table_ != nullptr) {
      *table_ << fmt::format(
          "{} cells, {} skipped; worst auto / off {:.3f} ({}); geometric mean off / auto {:.3f}; median error of the "
          "predicted time {:.0f}%\n",
          t.cells, t.skipped, t.worst, t.worst_cell, t.geomean, 100 * t.predicted_error);
    }
    if (out_ == nullptr) return;
    json::object summary = record_.summary();
    summary["grid"] = options_.grid;
    summary["shard"] = options_.shard;
    summary["shards"] = options_.shards;
    *out_ << json::serialize(summary) << std::endl;
  }

  ops::Backend& backend_;
  const AttentionBenchOptions& options_;
  std::ostream* table_;
  std::ostream* out_;
  SystemClock clock_;
  int64_t begin_ns_ = clock_.now_ns();
  Matrices matrices_;
  AttentionRecord record_;
  ops::Peaks peaks_;
};

}  // namespace

Status run_attention_bench(ops::Backend& backend, const AttentionBenchOptions& options, std::ostream* table,
                           std::ostream* out) {
  return GridBench(backend, options, table, out).run();
}

}  // namespace headwater::bench
