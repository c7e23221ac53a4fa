// What the demo measured, what it asserts about it, and how it shows it.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "apps/answers.h"
#include "attention/plan.h"
#include "ops/backend.h"

namespace headwater::apps {

// Sums over the steps of one arm. Steady steps: every chat decoded one token and nothing else ran.
struct DemoArmReport {
  size_t tokens = 0;
  int64_t nanoseconds = 0;
  uint32_t steps = 0;
  std::array<uint32_t, 3> steps_by_path{};
  uint32_t steady_steps = 0;
  uint32_t steady_nested_steps = 0;  // of them, with at least 2 groups, depth 2 and 16 members
  int64_t steady_nanoseconds = 0;
  int64_t steady_attention_nanoseconds = 0;
  uint64_t steady_bytes_read = 0, steady_bytes_flat = 0;  // one layer
  attention::Outcome best;                                // of the step with most nodes attended once
  attention::Outcome last_steady;

  void add_step(const attention::Outcome& outcome, int64_t step_ns, int64_t attention_ns, bool steady);
};

struct DemoReport {
  DemoArmReport shared, flat;
  std::string target;
  bool texts_equal = false;
  bool cached_equal = false;  // both arms took the same prompt tokens from their own prefix cache
  size_t chats = 0;
  uint32_t layers = 0;
  double bound_ratio = 0;      // off / auto that the measured peaks allow; 0: peaks not measured
  double attention_ratio = 0;  // off / auto measured

  double tokens_per_s(const DemoArmReport& arm) const;           // of steady steps
  double attention_ms_per_step(const DemoArmReport& arm) const;  // all layers
};

DemoReport make_report(const Runtime& runtime, const ops::Peaks& peaks, const DemoArmReport& shared,
                       const DemoArmReport& flat, const std::vector<Answer>& shared_answers,
                       const std::vector<Answer>& flat_answers);
void print_report(const Runtime& runtime, const DemoReport& report, const std::vector<Answer>& answers);
Status write_report(const DemoReport& report, const std::string& path);
// An error when an arm did not run what it says, or a text differs. On targets without tile products, where attending once pays little,
// `auto` may stay flat, if below_cost is the reason.
Status verdict(const DemoReport& report);

}  // namespace headwater::apps
