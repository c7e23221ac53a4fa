// Qwen 3 with experts in every layer: a softmax over all router logits, of which the largest count.
// Source: arXiv 2505.09388.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::qwen3moe {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::qwen3moe
