// Granite 3: Llama with multipliers of embedding, residual, attention scores and logits. GGUF keeps rows of q and k for adjacent
// pairs. Source: model card and config.json of ibm-granite/granite-3.1-2b-instruct.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::granite {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::granite
