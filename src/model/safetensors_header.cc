#include "model/safetensors_header.h"

#include <algorithm>
#include <cstring>

#include "core/shown.h"
#include "model/names.h"

namespace headwater::model {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kHeaderBytesMax = 100'000'000;  // the format's own limit
constexpr size_t kDimensionsMax = 8;
constexpr size_t kNameBytesMax = 1024;  // names go into messages
constexpr std::string_view kMetadata = "__metadata__";

template <typename... Args>
Status corrupt(fmt::format_string<Args...> format, Args&&... args) {
  return error(ErrorCode::kCorrupt, "offset {}: {}", kLengthBytes, fmt::format(format, std::forward<Args>(args)...));
}

Result<std::string_view> read_header_text(std::span<const std::byte> bytes) {
  if (bytes.size() < kLengthBytes) {
    return error(ErrorCode::kCorrupt, "offset 0: the length of the header needs 8 bytes; the file has {}",
                 bytes.size());
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  const uint64_t length_max = std::min<uint64_t>(bytes.size() - kLengthBytes, kHeaderBytesMax);
  if (length > length_max) {
    return error(ErrorCode::kCorrupt, "offset 0: a header of {} bytes; the file of {} bytes can have one of at most {}",
                 length, bytes.size(), length_max);
  }
  return std::string_view(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
}

Result<DType> read_dtype(std::string_view name, const json::Value* value) {
  if (value == nullptr || !value->is_string()) return corrupt("tensor '{}' has no \"dtype\" string", name);
  const std::string_view text = value->get_string();
  const std::optional<DType> dtype = dtype_named(text);
  if (dtype && block_elements(*dtype) == 1) return *dtype;
  return error(
      ErrorCode::kUnsupported,
      "offset {}: tensor '{}' has dtype \"{}\"; supported are F32, F16, BF16 and F8_E4M3 for weights, F64, I64, "
      "I32, I16, I8, U8 and BOOL beside them",
      kLengthBytes, name, shown(text, 20));
}

Result<std::vector<uint64_t>> read_numbers(std::string_view name, std::string_view field, const json::Value* value,
                                           size_t count_max) {
  const auto* array = value == nullptr ? nullptr : value->if_array();
  if (array == nullptr || array->size() > count_max) {
    return corrupt("tensor '{}' has no \"{}\" array of at most {} numbers", name, field, count_max);
  }
  std::vector<uint64_t> numbers;
  for (const json::Value& item : *array) {
    const std::optional<uint64_t> number = json::to_unsigned(item);
    if (!number) return corrupt("tensor '{}' has a \"{}\" that is no integer of at least 0", name, field);
    numbers.push_back(*number);
  }
  return numbers;
}

Result<Tensor> read_tensor(std::string_view name, const json::Value& entry, std::span<const std::byte> bytes,
                           uint64_t data_start) {
  if (!is_printable(name)) return corrupt("the tensor name {} is empty or not printable ASCII", quoted(name));
  if (name.size() > kNameBytesMax) {
    return corrupt("the tensor name {} has {} bytes; the limit is {}", quoted(name), name.size(), kNameBytesMax);
  }
  HEADWATER_ASSIGN_OR_RETURN(const DType dtype, read_dtype(name, json::find(entry, "dtype")));
  HEADWATER_ASSIGN_OR_RETURN(std::vector<uint64_t> shape,
                             read_numbers(name, "shape", json::find(entry, "shape"), kDimensionsMax));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<uint64_t> offsets,
                             read_numbers(name, "data_offsets", json::find(entry, "data_offsets"), 2));
  const uint64_t available = bytes.size() - data_start;
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > available) {
    return corrupt("tensor '{}' lies at [{}, {}) of {} bytes of data; the file is cut or damaged", name,
                   offsets.empty() ? 0 : offsets[0], offsets.size() < 2 ? 0 : offsets[1], available);
  }
  uint64_t size = block_bytes(dtype);
  bool wraps = false;
  for (const uint64_t dimension : shape) wraps |= __builtin_mul_overflow(size, dimension, &size);
  if (wraps || size != offsets[1] - offsets[0]) {
    return corrupt("tensor '{}' lies at [{}, {}), which is not what its shape in {} needs", name, offsets[0],
                   offsets[1], to_string(dtype));
  }
  std::ranges::reverse(shape);
  const uint64_t file_offset = data_start + offsets[0];
  return Tensor{name, dtype, std::move(shape), bytes.subspan(file_offset, size), file_offset};
}

// Each tensor begins where the one before it ends, from the first byte of data to the last.
Status check_layout(const std::vector<Tensor>& tensors, uint64_t data_start, uint64_t file_bytes) {
  uint64_t end = data_start;
  for (const Tensor& tensor : tensors) {
    if (tensor.file_offset != end) {
      return error(ErrorCode::kCorrupt, "offset {}: tensor '{}' {}", tensor.file_offset, tensor.name,
                   tensor.file_offset < end ? fmt::format("overlaps the one before it, which ends at {}", end)
                                            : fmt::format("follows a hole from {}", end));
    }
    end += tensor.data.size();
  }
  if (end == file_bytes) return {};
  return error(ErrorCode::kCorrupt, "offset {}: {} bytes follow the last tensor", end, file_bytes - end);
}

}  // namespace

Result<SafetensorsContents> parse_safetensors(std::span<const std::byte> bytes) {
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view text, read_header_text(bytes));
  HEADWATER_ASSIGN_OR_RETURN(json::Value header, json::parse(text, "the header from offset 8"));
  SafetensorsContents contents{std::make_unique<const json::Value>(std::move(header)), {}};
  if (!contents.header->is_object()) return corrupt("the header is no JSON object");
  if (const auto name = json::repeated_name(text)) {
    return corrupt("tensor '{}' appears twice", shown(*name));
  }
  const uint64_t data_start = kLengthBytes + text.size();
  for (const auto& [name, entry] : contents.header->get_object()) {
    if (std::string_view(name) == kMetadata) continue;
    HEADWATER_ASSIGN_OR_RETURN(Tensor tensor, read_tensor(name, entry, bytes, data_start));
    contents.tensors.push_back(std::move(tensor));
  }
  std::ranges::sort(contents.tensors, {}, [](const Tensor& t) { return std::pair(t.file_offset, t.data.size()); });
  HEADWATER_RETURN_IF_ERROR(check_layout(contents.tensors, data_start, bytes.size()));
  return contents;
}

}  // namespace headwater::model
