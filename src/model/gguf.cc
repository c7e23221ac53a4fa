#include "model/gguf.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <variant>

#include "core/shown.h"
#include "model/gguf_cursor.h"
#include "model/gguf_parser.h"
#include "model/gguf_text.h"
#include "model/mapping.h"

namespace headwater::model {
namespace {

std::optional<int64_t> to_integer(const GgufScalar& scalar) {
  if (const auto* value = std::get_if<int64_t>(&scalar)) return *value;
  const auto* value = std::get_if<uint64_t>(&scalar);
  if (value == nullptr || *value > uint64_t{std::numeric_limits<int64_t>::max()}) return std::nullopt;
  return static_cast<int64_t>(*value);
}

std::optional<uint64_t> to_unsigned(const GgufScalar& scalar) {
  if (const auto* value = std::get_if<uint64_t>(&scalar)) return *value;
  const auto* value = std::get_if<int64_t>(&scalar);
  if (value == nullptr || *value < 0) return std::nullopt;
  return static_cast<uint64_t>(*value);
}

std::optional<double> to_number(const GgufScalar& scalar) {
  if (const auto* value = std::get_if<double>(&scalar)) return *value;
  if (const auto* value = std::get_if<int64_t>(&scalar)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<uint64_t>(&scalar)) return static_cast<double>(*value);
  return std::nullopt;
}

std::optional<bool> to_bool(const GgufScalar& scalar) {
  const auto* value = std::get_if<bool>(&scalar);
  return value == nullptr ? std::nullopt : std::optional<bool>(*value);
}

// Elements of an array that grow more than twofold when they are read.
constexpr uint64_t kWidenedMax = 1 << 21;

}  // namespace

struct GgufFile::Impl {
  std::vector<Mapping> mappings;  // of the parts; none when the bytes are borrowed
  uint64_t bytes = 0;             // of all parts
  GgufContents contents;          // metadata of the first part, tensors of all

  std::optional<size_t> find(std::string_view key) const {
    const auto found = contents.entry_index.find(key);
    return found == contents.entry_index.end() ? std::nullopt : std::optional<size_t>(found->second);
  }

  Status mismatch(size_t index, std::string_view expected) const {
    const Entry& entry = contents.entries[index];
    const bool is_array = entry.type == GgufType::kArray;
    return error(ErrorCode::kCorrupt, "offset {}: metadata key '{}' holds {} ({}{}); expected {}", entry.offset,
                 shown(entry.key), describe_value(entry, contents.values[index], 40), is_array ? "array of " : "",
                 to_string(entry.element_type), expected);
  }

  template <typename Convert>
  auto scalar_at(std::string_view key, std::string_view expected, Convert convert) const
      -> Result<typename decltype(convert(GgufScalar()))::value_type> {
    const auto index = find(key);
    if (!index) return error(ErrorCode::kNotFound, "metadata key '{}' is missing", key);
    const GgufType type = contents.entries[*index].type;
    if (scalar_bytes(type) == 0) return mismatch(*index, expected);
    const auto value = convert(load_scalar(type, contents.values[*index].data()));
    if (!value) return mismatch(*index, expected);
    return *value;
  }

  template <typename Convert>
  auto scalars_at(std::string_view key, std::string_view expected, Convert convert) const
      -> Result<std::vector<typename decltype(convert(GgufScalar()))::value_type>> {
    const auto index = find(key);
    if (!index) return error(ErrorCode::kNotFound, "metadata key '{}' is missing", key);
    const Entry& entry = contents.entries[*index];
    const uint32_t stride = scalar_bytes(entry.element_type);
    if (entry.type != GgufType::kArray || stride == 0) return mismatch(*index, expected);
    if (entry.count > kWidenedMax && stride < 4) {
      return error(ErrorCode::kUnsupported, "offset {}: metadata key '{}' has {} elements of {} bytes; the limit is {}",
                   entry.offset, key, entry.count, stride, kWidenedMax);
    }
    std::vector<typename decltype(convert(GgufScalar()))::value_type> values;
    values.reserve(entry.count);
    for (uint64_t i = 0; i < entry.count; ++i) {
      const auto value = convert(load_scalar(entry.element_type, contents.values[*index].data() + i * stride));
      if (!value) return mismatch(*index, expected);
      values.push_back(*value);
    }
    return values;
  }
};

GgufFile::GgufFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;
GgufFile::~GgufFile() = default;

Result<GgufFile> GgufFile::open(const std::string& path) {
  HEADWATER_ASSIGN_OR_RETURN(GgufFile file, open_part(path));
  return file.has("split.count") ? open_split(std::move(file), path) : std::move(file);
}

Result<GgufFile> GgufFile::open_part(const std::string& path) {
  HEADWATER_ASSIGN_OR_RETURN(Mapping mapping, Mapping::create(path));
  auto file = parse(mapping.bytes());
  if (!file) return error(file.status().code(), "'{}': {}", path, file.status().message());
  file->impl_->mappings.push_back(std::move(mapping));
  return file;
}

Result<GgufFile> GgufFile::parse(std::span<const std::byte> bytes) {
  HEADWATER_ASSIGN_OR_RETURN(GgufContents contents, parse_gguf(bytes));
  return GgufFile(std::make_unique<Impl>(Impl{{}, bytes.size(), std::move(contents)}));
}

Status GgufFile::add_part(GgufFile part, const std::string& path) {
  GgufContents& whole = impl_->contents;
  for (Tensor& tensor : part.impl_->contents.tensors) {
    if (!whole.tensor_index.emplace(tensor.name, whole.tensors.size()).second) {
      return error(ErrorCode::kCorrupt, "'{}': tensor '{}' is in a part before it as well", path, tensor.name);
    }
    whole.tensors.push_back(std::move(tensor));
  }
  impl_->bytes += part.impl_->bytes;
  for (Mapping& mapping : part.impl_->mappings) impl_->mappings.push_back(std::move(mapping));
  return {};
}

bool GgufFile::has(std::string_view key) const {
  return impl_->find(key).has_value();
}

Result<uint64_t> GgufFile::unsigned_at(std::string_view key) const {
  return impl_->scalar_at(key, "an integer of at least 0", to_unsigned);
}
Result<int64_t> GgufFile::integer_at(std::string_view key) const {
  return impl_->scalar_at(key, "an integer of at most 63 bits", to_integer);
}
Result<double> GgufFile::number_at(std::string_view key) const {
  return impl_->scalar_at(key, "a number", to_number);
}
Result<bool> GgufFile::bool_at(std::string_view key) const {
  return impl_->scalar_at(key, "a bool", to_bool);
}
Result<std::vector<int64_t>> GgufFile::integers_at(std::string_view key) const {
  return impl_->scalars_at(key, "an array of integers of at most 63 bits", to_integer);
}
Result<std::vector<double>> GgufFile::numbers_at(std::string_view key) const {
  return impl_->scalars_at(key, "an array of numbers", to_number);
}
Result<std::vector<bool>> GgufFile::bools_at(std::string_view key) const {
  return impl_->scalars_at(key, "an array of bools", to_bool);
}

Result<std::string_view> GgufFile::string_at(std::string_view key) const {
  const auto index = impl_->find(key);
  if (!index) return error(ErrorCode::kNotFound, "metadata key '{}' is missing", key);
  if (impl_->contents.entries[*index].type != GgufType::kString) return impl_->mismatch(*index, "a string");
  GgufCursor cursor(impl_->contents.values[*index]);
  return cursor.read_string(key, cursor.remaining());
}

Result<std::vector<std::string_view>> GgufFile::strings_at(std::string_view key) const {
  const auto index = impl_->find(key);
  if (!index) return error(ErrorCode::kNotFound, "metadata key '{}' is missing", key);
  const Entry& entry = impl_->contents.entries[*index];
  if (entry.type != GgufType::kArray || entry.element_type != GgufType::kString) {
    return impl_->mismatch(*index, "an array of strings");
  }
  GgufCursor cursor(impl_->contents.values[*index]);
  std::vector<std::string_view> strings;
  strings.reserve(entry.count);
  for (uint64_t i = 0; i < entry.count; ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const std::string_view text, cursor.read_string(key, cursor.remaining()));
    strings.push_back(text);
  }
  return strings;
}

const std::vector<GgufFile::Entry>& GgufFile::entries() const {
  return impl_->contents.entries;
}

std::string GgufFile::describe(std::string_view key, size_t characters_max) const {
  const auto index = impl_->find(key);
  if (!index) return "";
  return describe_value(impl_->contents.entries[*index], impl_->contents.values[*index], characters_max);
}

const std::vector<Tensor>& GgufFile::tensors() const {
  return impl_->contents.tensors;
}

const Tensor* GgufFile::find(std::string_view name) const {
  const auto found = impl_->contents.tensor_index.find(name);
  return found == impl_->contents.tensor_index.end() ? nullptr : &impl_->contents.tensors[found->second];
}

uint64_t GgufFile::file_bytes() const {
  return impl_->bytes;
}
size_t GgufFile::parts() const {
  return std::max<size_t>(1, impl_->mappings.size());
}
uint32_t GgufFile::alignment() const {
  return impl_->contents.alignment;
}

void GgufFile::drop_resident() const {
  for (const Mapping& mapping : impl_->mappings) mapping.drop_resident();
}

}  // namespace headwater::model
