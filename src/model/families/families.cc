#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "model/families/family.h"
#include "model/families/llama/llama.h"

namespace headwater::model {
namespace {

constexpr Family kFamilies[] = {
    {"llama", llama::read_shape, llama::tensors, llama::load},
};

Result<const Family*> find_family(const GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view architecture, file.string_at("general.architecture"));
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) {
    if (family.name == architecture) return &family;
    names.push_back(family.name);
  }
  return error(ErrorCode::kUnsupported, "model family '{}' (general.architecture) is not supported; known: {}",
               architecture, fmt::join(names, ", "));
}

std::string shape_text(uint64_t columns, uint64_t rows) {
  return rows == 1 ? fmt::format("[{}]", columns) : fmt::format("[{}, {}]", columns, rows);
}

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

Result<uint32_t> bounded_at(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high) {
  HEADWATER_ASSIGN_OR_RETURN(const uint64_t value, file.unsigned_at(key));
  if (value < low || value > high) {
    return error(ErrorCode::kCorrupt, "{} is {}; expected {} to {}", key, value, low, high);
  }
  return static_cast<uint32_t>(value);
}

Result<uint32_t> bounded_or(const GgufFile& file, const std::string& key, uint64_t low, uint64_t high,
                            uint32_t absent) {
  if (!file.has(key)) return absent;
  return bounded_at(file, key, low, high);
}

Result<ModelShape> read_shape(const GgufFile& file) {
  HEADWATER_ASSIGN_OR_RETURN(const Family* family, find_family(file));
  HEADWATER_ASSIGN_OR_RETURN(ModelShape shape, family->read_shape(file));
  shape.family = family->name;
  if (file.has("general.name")) {
    HEADWATER_ASSIGN_OR_RETURN(shape.name, file.string_at("general.name"));
    std::ranges::replace_if(
        shape.name, [](char c) { return c >= 0 && (c < ' ' || c == 0x7f); }, '?');  // it is printed
  }
  for (const Tensor& tensor : file.tensors()) shape.weight_bytes += tensor.data.size();
  return shape;
}

Status check_tensors(const GgufFile& file, const ModelShape& shape) {
  HEADWATER_ASSIGN_OR_RETURN(const Family* family, find_family(file));
  std::set<std::string_view> expected;
  const std::vector<TensorSpec> specs = family->tensors(shape);
  for (const TensorSpec& spec : specs) {
    const Tensor* tensor = file.find(spec.name);
    if (tensor == nullptr) {
      if (spec.optional) continue;
      return error(ErrorCode::kCorrupt, "tensor {} {} is missing", spec.name, shape_text(spec.columns, spec.rows));
    }
    expected.insert(tensor->name);
    if (tensor->columns() != spec.columns || tensor->rows() != spec.rows) {
      return error(ErrorCode::kCorrupt, "tensor {} has shape [{}]; expected {}", spec.name,
                   fmt::join(tensor->shape, ", "), shape_text(spec.columns, spec.rows));
    }
  }
  for (const Tensor& tensor : file.tensors()) {
    if (!expected.contains(tensor.name)) {
      return error(ErrorCode::kUnsupported,
                   "tensor {} [{}] is not part of the family '{}'; this variant is not supported", tensor.name,
                   fmt::join(tensor.shape, ", "), family->name);
    }
  }
  return {};
}

Result<std::unique_ptr<Model>> load_model(const GgufFile& file, ops::Backend& backend, void (*progress)(float)) {
  HEADWATER_ASSIGN_OR_RETURN(const Family* family, find_family(file));
  HEADWATER_ASSIGN_OR_RETURN(const ModelShape shape, read_shape(file));
  HEADWATER_RETURN_IF_ERROR(check_tensors(file, shape));
  auto model = family->load(file, shape, backend, progress);
  file.drop_resident();
  return model;
}

}  // namespace headwater::model
