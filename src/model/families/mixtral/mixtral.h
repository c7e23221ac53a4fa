// Mixtral: Mistral with experts instead of the feed-forward block, the weights of the chosen ones a softmax of their logits.
// GGUF calls the architecture llama; its expert_count tells them apart. Source: arXiv 2401.04088.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::mixtral {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::mixtral
