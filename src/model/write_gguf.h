// A GGUF file from a folder of safetensors, for every family: a folder's slots (transformer/weights.h) load what GGUF's slots
// of the same blueprint write, a layer at a time.
#pragma once

#include <functional>
#include <string>

#include "model/checkpoint.h"
#include "model/gguf_header.h"
#include "model/tokenizer_texts.h"

namespace headwater::model {

// Writes tokenizer.*, of which this room knows nothing. rows: of the embedding.
using TokenizerWriter = std::function<Status(const TokenizerTexts& texts, uint64_t rows, GgufHeader& header)>;

// Matrices become `dtype` (Q8_0, Q4_0, Q4_1, BF16, F32: quantize.h), or BF16 where their rows are not whole blocks; vectors
// and routers of experts are F32, and experts in MXFP4 stay so, as llama.cpp's converter has them. The file is there whole
// or not at all; progress: 0..1, may be empty. kUnsupported, before anything is written: a model, number or tokenizer that
// Headwater does not compute or GGUF has no place for; kExhausted: the disk is full.
Status write_gguf(const Checkpoint& checkpoint, std::string_view name, DType dtype, const std::string& path,
                  const TokenizerWriter& write_tokenizer, const std::function<void(double)>& progress);

}  // namespace headwater::model
