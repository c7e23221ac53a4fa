// Qwen 3: Llama whose heads of q and k are normalised before they turn. Source: arXiv 2505.09388.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::qwen3 {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::qwen3
