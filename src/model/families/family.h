// What a model family provides; one row a family in families.cc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/decoder.h"

namespace headwater::model {

// A tensor that a family expects: name, and shape as GGUF stores it (columns first; rows 1 for a vector).
struct TensorSpec {
  std::string name;
  uint64_t columns;
  uint64_t rows;
  bool optional = false;
};

struct Family {
  std::string_view name;  // general.architecture
  Result<ModelShape> (*read_shape)(const GgufFile& file);
  std::vector<TensorSpec> (*tensors)(const ModelShape& shape);
  Result<std::unique_ptr<Model>> (*load)(const GgufFile& file, const ModelShape& shape, ops::Backend& backend,
                                         void (*progress)(float));
};

std::span<const Family> families();

// Reads an integer of the metadata and checks its range; the error names the key, the value and the range.
Result<uint32_t> bounded_at(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high);
// The same with a value for a key that is absent.
Result<uint32_t> bounded_or(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high, uint32_t absent);

}  // namespace headwater::model
