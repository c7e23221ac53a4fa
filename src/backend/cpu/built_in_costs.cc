// Measured by `headwater tune` on one core of an Intel Xeon (family 6, model 207), November 2026, and rounded. Another
// processor differs, so a built-in plan shares only where it is to save a tenth, and reading from outside the private cache,
// which makes sharing pay most, costs less here than on any machine that was measured.
#include "backend/cpu/attention_costs.h"

namespace headwater::backend::cpu {
namespace {

constexpr double kStep = 1000;

ElementCosts element(double row_width, double pass, double pass_width, double weight, double weight_width) {
  ElementCosts costs;
  costs.item = 60;
  costs.row = 20;
  costs.row_width = row_width;
  costs.pass = pass;
  costs.pass_width = pass_width;
  costs.weight = weight;
  costs.weight_width = weight_width;
  costs.partial = 30;
  costs.partial_width = 5;
  costs.error = 0.1;
  for (size_t i = 0; i < kReadKib.size(); ++i) costs.read[i] = kReadKib[i] <= 1024 ? 0 : kReadKib[i] <= 8192 ? 15 : 30;
  return costs;
}

}  // namespace

AttentionCosts built_in_costs(Target target) {
  switch (target) {
    case Target::kScalar:
      return {kStep, element(1400, 0, 60, 0, 55), element(1400, 140, 400, 0, 30), element(1400, 0, 27, 0, 55),
              element(1400, 0, 115, 3, 20)};
    case Target::kAvx2:
      return {kStep, element(60, 0, 10.5, 1.3, 3), element(60, 0, 12, 1, 1.6), element(60, 0.5, 9, 0.8, 1.6),
              element(60, 0, 18, 0.5, 2.5)};
    case Target::kAvx512:
      return {kStep, element(30, 0.2, 2.8, 0.6, 1.3), element(30, 0.3, 3.6, 0.4, 1.6), element(30, 0, 3.3, 0.4, 1.2),
              element(30, 0, 7, 0.4, 1.2)};
    case Target::kAvx512Bf16:
      return {kStep, element(30, 0.2, 1, 0.5, 2.9), element(30, 0.3, 3.6, 0.4, 1.6), element(30, 0, 3.3, 0.4, 1.2),
              element(30, 0, 5.5, 0.5, 2.9)};
    case Target::kAvx512Amx:
      return {kStep, element(40, 0.4, 3, 0.6, 0), element(30, 0.3, 3.6, 0.4, 1.6), element(30, 0, 3.3, 0.4, 1.2),
              element(40, 0, 8, 0.6, 0)};
  }
  check(false, "a target without costs");
  return {};
}

}  // namespace headwater::backend::cpu
