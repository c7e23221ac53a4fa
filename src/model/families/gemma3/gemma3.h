// Gemma 3 (text): Gemma 2 without a cap on scores, with norms on q and k. Five of six layers are local: they have a window and
// a RoPE base of their own. Source: arXiv 2503.19786.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::gemma3 {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::gemma3
