// Llama 2 and 3, SmolLM2, TinyLlama, Mistral with and without a window: pre-norm decoder with RMSNorm, grouped-query
// attention, RoPE, SwiGLU. The family that the others vary. GGUF keeps rows of q and k for adjacent pairs.
// Source: Touvron et al., arXiv 2302.13971 and 2307.09288; Llama 3, 2407.21783; Mistral 7B, 2310.06825.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::llama {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::llama
