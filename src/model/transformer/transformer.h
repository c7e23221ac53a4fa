// The one decoder of all families, over a Blueprint and its weights.
#pragma once

#include "model/transformer/weights.h"

namespace headwater::model {

// `backend` and the file behind the weights outlive the model.
std::unique_ptr<Model> create_transformer(Weights weights, ops::Backend& backend);

}  // namespace headwater::model
