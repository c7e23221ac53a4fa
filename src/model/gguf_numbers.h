// What a GGUF file says of a model that was read from a folder: the other half of Hyperparameters.
#pragma once

#include <vector>

#include "model/gguf_header.h"
#include "model/transformer/blueprint.h"

namespace headwater::model {

// general.architecture and everything below it, and the tensors that hold numbers (factors of RoPE), which come first in the
// data and whose bytes are returned.
std::vector<std::byte> write_numbers(std::string_view architecture, const GgufNumbers& numbers, GgufHeader& header);

// What comes back when the family reads that: kUnsupported names the first number that GGUF has no place for.
Status check_numbers(std::string_view architecture, const GgufNumbers& numbers, const Blueprint& folder);

}  // namespace headwater::model
