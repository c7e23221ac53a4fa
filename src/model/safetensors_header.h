// One safetensors file: where its tensors lie, all of it checked. Internal to the reader; callers use safetensors.h.
//
//   | u64 length of the header | header: a JSON object | data |
//
//   {"__metadata__": {...}, "name": {"dtype": "BF16", "shape": [rows, columns], "data_offsets": [begin, end]}, ...}
//
// Offsets count from the first byte of data. Tensors neither overlap nor leave a byte of it over.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/json.h"
#include "model/tensor.h"

namespace headwater::model {

struct SafetensorsContents {
  std::unique_ptr<const json::Value> header;  // owns the names; assigning a Value may copy it elsewhere
  std::vector<Tensor> tensors;                // by where they lie
};

// Views point into `bytes`. kCorrupt, kUnsupported (a dtype) with the offset and what was found there.
Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes);

}  // namespace headwater::model
