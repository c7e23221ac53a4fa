// Phi 3 and Phi 4: q, k and v in one tensor, gate and up in another; LongRoPE; part of a head may stay as it is.
// Source: arXiv 2404.14219, 2412.08905, 2503.01743.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::phi3 {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::phi3
