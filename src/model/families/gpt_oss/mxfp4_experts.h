// The experts of a gpt-oss folder: one tensor of blocks and one of scales for all experts of a layer, rows of gate and up
// alternating. They become MXFP4 blocks as GGUF has them (core/quant.h), an expert's matrix each; no value changes.
//
//   <name>_blocks  U8 [experts, rows, columns / 32, 16]  elements 2j and 2j + 1 of the block in the low and high half of byte j
//   <name>_scales  U8 [experts, rows, columns / 32]      the block's power of two, plus 127
//   <name>_bias       [experts, rows]
//   GGUF block     17 bytes: the scale; elements j and j + 16 in the low and high half of byte j
#pragma once

#include "model/transformer/weights.h"

namespace headwater::model::gpt_oss {

void mxfp4_expert_slots(const Blueprint& blueprint, uint32_t layer, LayerWeights& weights, std::vector<Slot>& slots);

}  // namespace headwater::model::gpt_oss
