// Gemma 2: norms around each block, soft caps on scores and logits, a window in every other layer, GeGLU, scaled embeddings.
// A norm multiplies by 1 + weight; GGUF has the 1 added. Source: arXiv 2408.00118.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::gemma2 {

Blueprint read(Hyperparameters& h);

// What Gemma 2 and 3 share. layers_27b: of the largest model of the generation.
Blueprint read_gemma(Hyperparameters& h, uint32_t layers_27b);

}  // namespace headwater::model::gemma2
