// One cell of `bench attention`: its arms planned, held against each other, timed in turn, written down.
#pragma once

#include <boost/json.hpp>
#include <memory>
#include <vector>

#include "bench/attention_bench.h"
#include "bench/matrices.h"
#include "bench/statistics.h"
#include "bench/workload.h"

namespace headwater::bench {

struct Arm {
  const char* name;
  attention::Sharing sharing;
  attention::Planner planner;
  ops::StepBlock block;
  ops::DeviceBatch batch = {};
  ops::Matrix out = {};
  attention::Outcome outcome = {};
  double plan_us = 0;
  std::unique_ptr<ops::Stopwatch> cold, warm;
  std::vector<double> us, warm_us;
};

struct CellResult {
  bool identical = false;
  double ratio = 1;  // (plan / L + us) auto over off, median over pairs
  Interval interval{1, 1};
  double max_abs_diff = 0;
  double bound_us = 0;  // of auto; 0: not measured
};

class CellBench {
 public:
  // All outlive the bench. matrices: of this cell from now on.
  CellBench(ops::Backend& backend, Matrices& matrices, const AttentionBenchOptions& options, const Cell& cell);

  // kExhausted, kUnsupported: the back end does not take the cell.
  Status prepare();
  // Outcomes as named, outputs equal: before anything is timed.
  Status check_arms(CellResult& result);
  Status measure(CellResult& result);
  // A line for each arm; puts the bound into the result.
  Result<std::vector<boost::json::object>> lines(CellResult& result, const ops::Peaks& peaks);

  const std::vector<Arm>& arms() const { return arms_; }

 private:
  Status add_arm(const char* name, attention::Sharing sharing);
  Status plan(Arm& arm);
  Status check_outcomes() const;
  Result<std::vector<float>> run_once(Arm& arm);
  Result<double> sample(Arm& arm, ops::Stopwatch& stopwatch);
  void enqueue(const Arm& arm);
  Status measure_warm();
  boost::json::object line(const Arm& arm, const CellResult& result) const;
  Result<double> bound_us(const Arm& arm, const ops::Peaks& peaks);

  ops::Backend& backend_;
  Matrices& matrices_;
  const AttentionBenchOptions& options_;
  Workload work_;
  std::unique_ptr<ops::KvPool> pool_;
  ops::Matrix q_;
  ops::Matrix sinks_;
  std::vector<Arm> arms_;
};

boost::json::object skipped_line(const ops::Backend& backend, const Cell& cell, const std::string& why);

}  // namespace headwater::bench
