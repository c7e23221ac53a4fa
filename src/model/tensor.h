// A tensor as a file holds it.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::model {

struct Tensor {
  std::string_view name;
  DType dtype;
  std::vector<uint64_t> shape;  // shape[0] is the contiguous dimension (columns), then rows, ...; as GGUF has it
  std::span<const std::byte> data;
  uint64_t file_offset;  // of data, from the start of its file

  uint64_t columns() const { return shape.empty() ? 1 : shape[0]; }
  uint64_t rows() const;  // product of the other dimensions
};

}  // namespace headwater::model
