// The llama family (Llama 2 and 3 without RoPE scaling, SmolLM2, TinyLlama, Mistral without window): pre-norm decoder
// with RMSNorm, grouped-query attention, RoPE on adjacent pairs, SwiGLU; output tied to the embedding when
// output.weight is absent. Source: Touvron et al., arXiv 2302.13971 and 2307.09288.
#pragma once

#include "model/families/family.h"

namespace headwater::model::llama {

Result<ModelShape> read_shape(const GgufFile& file);
std::vector<TensorSpec> tensors(const ModelShape& shape);
Result<std::unique_ptr<Model>> load(const GgufFile& file, const ModelShape& shape, ops::Backend& backend,
                                    void (*progress)(float));

}  // namespace headwater::model::llama
