// gpt-oss: attention sinks, a window in every other layer, biases, experts with a clamped SwiGLU in MXFP4, YaRN whose bounds
// are not rounded. Source: arXiv 2508.10925 (model card), config.json of openai/gpt-oss-20b.
#pragma once

#include "model/transformer/blueprint.h"

namespace headwater::model::gpt_oss {

Blueprint read(Hyperparameters& h);

}  // namespace headwater::model::gpt_oss
