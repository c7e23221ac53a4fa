// The choice of a token's experts from its router logits, the same on every host back end.
#pragma once

#include <cstdint>
#include <span>

#include "core/core.h"

namespace headwater::ops {

struct ExpertChoice {
  uint32_t expert;
  float weight;  // p of MixExpertsParams
};

// Fills `chosen`, [experts_used] with 1 <= experts_used <= experts, from `logits`, [experts]: by descending logit, the lower
// id first among equals. A logit that is NaN goes before all numbers, so that it reaches the weights and the output. When
// the greatest is infinite the weights are NaN.
void choose_experts(std::span<const float> logits, bool renormalize, std::span<ExpertChoice> chosen);

}  // namespace headwater::ops
