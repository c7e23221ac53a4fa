// A GGUF file from a folder of safetensors.
#pragma once

#include <functional>
#include <string>

#include "model/safetensors.h"

namespace headwater::model {

// Matrices become `dtype` (Q8_0, Q4_0, Q4_1, BF16: quantize.h), or BF16 where their rows are not whole blocks; vectors
// stay F32, as llama.cpp's converter has them. The file is there whole or not at all; progress: 0..1, may be empty.
// kUnsupported: a model, tokenizer or tensor that GGUF or Headwater has no name for; kExhausted: the disk is full.
Status write_gguf(const SafetensorsFolder& folder, std::string_view name, DType dtype, const std::string& path,
                  const std::function<void(double)>& progress);

}  // namespace headwater::model
