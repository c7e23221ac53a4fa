// Where the time of engine steps goes, kind by kind, beside the least time that measured peaks allow for it.
//
//   products          the largest of: weight bytes at the memory's rate; multiply-adds of quantised weights at the rate
//                     of byte products, and all multiply-adds at that of tensor products, where those were measured
//   attend            bench/attention_bound.h; the query tokens of a prompt chunk fill row tiles
//   norm, rope+append, gate, gather, sample
//                     activation bytes at the private cache's rate
//   embed, merge, copy, host
//                     no bound
//
// `host` is the wall time of a step less all operations: scheduling, planning, filling the block, commit. On a
// device, whose kinds were timed alone, it is `rest`: gaps between operations, copies, sampling, and the host where
// the device waits for it; below zero where operations of a step overlap. A kind timed alone is a recording launched again and
// again: those launches count, and the rows that pad its step, in its time and in its bound.
#pragma once

#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "attention/plan.h"
#include "bench/attention_bound.h"
#include "bench/work_totals.h"

namespace headwater::bench {

enum class StepPhase : uint8_t { kPrefill, kDecode };  // decode: every sequence computes one token
const char* to_string(StepPhase phase);

struct ProfileRow {
  std::string kind;         // "norm", "product 576 -> 960" (columns -> rows of the call's weights), "host"
  double ms = 0;            // a step
  double share = 0;         // of the step; the rows sum to 1
  double bound_ms = 0;      // 0: none
  const char* bound = "-";  // "memory", "arithmetic" or "-"
};

class StepProfile {
 public:
  // kv: layers, heads and dtype of the pool. Peaks of 0 give no bounds.
  StepProfile(StepPhase phase, const ops::Peaks& peaks, const ops::KvShape& kv, uint32_t q_heads)
      : phase_(phase), peaks_(peaks), kv_(kv), q_heads_(q_heads) {}

  // work: of this step alone. nanoseconds: its wall time.
  void add_step(const WorkTotals& work, int64_t nanoseconds, const attention::Outcome& outcome);
  // On a device, in the place of what the steps added: the kinds of one step, each timed alone.
  void set_kinds(const WorkTotals& step);

  StepPhase phase() const { return phase_; }
  bool are_kinds_timed_alone() const { return kinds_timed_alone_; }
  uint32_t steps() const { return steps_; }
  double ms() const;                     // a step
  std::vector<ProfileRow> rows() const;  // kinds that took time; empty without steps

 private:
  double per_step_ms(double nanoseconds) const { return nanoseconds * 1e-6 / steps_; }
  AttentionBound bound_of(const AttentionWork& work) const;  // of one layer
  ProfileRow row(std::string kind, const Work& work, double memory_s, double arithmetic_s) const;

  StepPhase phase_;
  ops::Peaks peaks_;
  ops::KvShape kv_;
  uint32_t q_heads_;
  uint32_t steps_ = 0;
  int64_t nanoseconds_ = 0;
  WorkTotals work_;
  bool kinds_timed_alone_ = false;
  AttentionBound attention_;  // all layers and steps
};

// An aligned table with a bar a row and a total, and what counts in kinds that were timed alone.
void print_profile(const StepProfile& profile, std::ostream& table);
// JSON lines {"kind", "ms", "share", "bound_ms", "bound", "arm", "phase"}.
void write_profile(const StepProfile& profile, std::string_view arm, std::ostream& json);

}  // namespace headwater::bench
