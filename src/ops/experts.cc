#include "ops/experts.h"

#include <cmath>

namespace headwater::ops {
namespace {

bool goes_before(float a, float b) {
  return a > b || (std::isnan(a) && !std::isnan(b));
}

}  // namespace

void choose_experts(std::span<const float> logits, bool renormalize, std::span<ExpertChoice> chosen) {
  check(!chosen.empty() && chosen.size() <= logits.size(), "a token uses at least one expert and at most all");
  size_t count = 0;
  for (uint32_t expert = 0; expert < logits.size(); ++expert) {  // an insertion sort of the best ones
    if (count == chosen.size() && !goes_before(logits[expert], logits[chosen[count - 1].expert])) continue;
    size_t at = count < chosen.size() ? count++ : count - 1;
    for (; at > 0 && goes_before(logits[expert], logits[chosen[at - 1].expert]); --at) chosen[at] = chosen[at - 1];
    chosen[at].expert = expert;
  }
  const double greatest = logits[chosen[0].expert];
  const auto exponential = [&](uint32_t expert) { return std::exp(logits[expert] - greatest); };
  double sum = 0;
  if (renormalize) {
    for (const ExpertChoice& choice : chosen) sum += exponential(choice.expert);
  } else {
    for (uint32_t expert = 0; expert < logits.size(); ++expert) sum += exponential(expert);
  }
  for (ExpertChoice& choice : chosen) choice.weight = static_cast<float>(exponential(choice.expert) / sum);
}

}  // namespace headwater::ops
