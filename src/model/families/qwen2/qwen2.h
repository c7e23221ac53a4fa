// Qwen 2 and 2.5: Llama with a bias on q, k and v. Source: arXiv 2407.10671, 2412.15115.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::qwen2 {

Blueprint read(Hyperparameters& h);

// config.json of every Qwen speaks of a window and switches it off.
void read_qwen_windows(Hyperparameters& h, Blueprint& blueprint);

}  // namespace headwater::model::qwen2
