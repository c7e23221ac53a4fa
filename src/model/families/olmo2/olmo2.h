// OLMo 2: norms behind the blocks instead of before them; q and k are normalised over all heads of a token.
// Source: arXiv 2501.00656.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::olmo2 {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::olmo2
