// The structure of a GGUF image: where every metadata value and every tensor lies, all of it checked. Internal to the
// GGUF reader; callers use gguf.h.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "model/gguf.h"

namespace headwater::model {

struct GgufContents {
  std::vector<GgufFile::Entry> entries;
  std::vector<std::span<const std::byte>> values;  // of each entry, encoded as in the file; an array from its element 0
  std::map<std::string_view, size_t> entry_index;  // key -> entries[]
  std::vector<Tensor> tensors;
  std::map<std::string_view, size_t> tensor_index;  // name -> tensors[]
  uint32_t alignment = 32;
};

const char* to_string(GgufType type);
uint32_t scalar_bytes(GgufType type);  // 0 for strings and arrays

// All views point into `bytes`. Errors as GgufFile::parse.
Result<GgufContents> parse_gguf(std::span<const std::byte> bytes);

}  // namespace headwater::model
