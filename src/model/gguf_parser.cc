#include "model/gguf_parser.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <string>

#include "core/shown.h"
#include "model/foreign_file.h"
#include "model/gguf_cursor.h"
#include "model/names.h"

namespace headwater::model {
namespace {

constexpr uint32_t kMagic = 0x46554747;  // "GGUF"
constexpr uint32_t kVersion = 3;
constexpr uint64_t kKeyBytesMax = 65535;
constexpr uint64_t kTensorNameBytesMax = 64;
constexpr uint32_t kDimensionsMax = 4;
constexpr uint64_t kEntriesMax = 1 << 16;  // far beyond any model's, and what bounds the memory of the lists
constexpr uint64_t kTensorsMax = 1 << 17;
constexpr uint32_t kAlignmentMin = 8;  // the format's own; also what in-place F32 and F16 data need

// The smallest encodings: how many items a claimed count can really have is bounded by the bytes that remain.
constexpr uint64_t kEntryBytesMin = 8 + 1 + 4 + 1;           // key, type, value
constexpr uint64_t kTensorBytesMin = 8 + 1 + 4 + 0 + 4 + 8;  // name, dimension count, type, offset
constexpr uint64_t kStringBytesMin = 8;

struct TypeTraits {
  const char* name;
  uint32_t bytes;
};
constexpr TypeTraits kTypes[] = {{"u8", 1},  {"i8", 1},  {"u16", 2},  {"i16", 2},    {"u32", 4},
                                 {"i32", 4}, {"f32", 4}, {"bool", 1}, {"string", 0}, {"array", 0},
                                 {"u64", 8}, {"i64", 8}, {"f64", 8}};

// Names of ggml's tensor types by number; empty where a type was removed.
constexpr std::string_view kTensorTypes[] = {
    "F32",   "F16",    "Q4_0",  "Q4_1", "",     "",        "Q5_0",   "Q5_1",    "Q8_0",  "Q8_1",   "Q2_K",
    "Q3_K",  "Q4_K",   "Q5_K",  "Q6_K", "Q8_K", "IQ2_XXS", "IQ2_XS", "IQ3_XXS", "IQ1_S", "IQ4_NL", "IQ3_S",
    "IQ2_S", "IQ4_XS", "I8",    "I16",  "I32",  "I64",     "F64",    "IQ1_M",   "BF16",  "",       "",
    "",      "TQ1_0",  "TQ2_0", "",     "",     "",        "MXFP4",  "NVFP4",   "Q1_0",  "Q2_0"};

template <typename... Args>
Status corrupt(uint64_t offset, fmt::format_string<Args...> format, Args&&... args) {
  return error(ErrorCode::kCorrupt, "offset {}: {}", offset, fmt::format(format, std::forward<Args>(args)...));
}

std::string supported_types() {
  std::vector<std::string_view> names;
  for (uint32_t number = 0; number < std::size(kTensorTypes); ++number) {
    if (gguf_dtype(number)) names.push_back(kTensorTypes[number]);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Result<DType> dtype_of(uint32_t number, std::string_view tensor, uint64_t offset) {
  if (const std::optional<DType> dtype = gguf_dtype(number)) return *dtype;
  const std::string_view name = number < std::size(kTensorTypes) ? kTensorTypes[number] : "";
  return error(ErrorCode::kUnsupported, "offset {}: tensor '{}' has type {} ({}); supported are {}", offset, tensor,
               name.empty() ? "unknown" : name, number, supported_types());
}

class Parser {
 public:
  explicit Parser(std::span<const std::byte> bytes) : bytes_(bytes), cursor_(bytes) {}

  Result<GgufContents> parse() {
    HEADWATER_RETURN_IF_ERROR(read_header());
    for (uint64_t i = 0; i < entry_count_; ++i) HEADWATER_RETURN_IF_ERROR(read_entry());
    HEADWATER_RETURN_IF_ERROR(read_alignment());
    for (uint64_t i = 0; i < tensor_count_; ++i) HEADWATER_RETURN_IF_ERROR(read_tensor());
    HEADWATER_RETURN_IF_ERROR(place_tensors());
    return std::move(contents_);
  }

 private:
  Status read_header();
  Status check_count(uint64_t count, uint64_t item_bytes_min, uint64_t offset, std::string_view what) const;
  Status read_entry();
  Result<GgufType> read_type(std::string_view key);
  Status skip_values(GgufType type, uint64_t count, std::string_view key);
  Status read_alignment();
  Status read_tensor();
  Result<std::vector<uint64_t>> read_shape(std::string_view name);
  Status place_tensors();
  Status check_overlaps() const;

  std::span<const std::byte> bytes_;
  GgufCursor cursor_;
  uint64_t tensor_count_ = 0;
  uint64_t entry_count_ = 0;
  std::vector<uint64_t> tensor_bytes_;  // of contents_.tensors[]
  GgufContents contents_;
};

Status Parser::read_header() {
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t magic, cursor_.read<uint32_t>("the magic"));
  if (magic != kMagic) {
    return corrupt(0, "found {:#010x} where a GGUF file has the bytes \"GGUF\"{}", magic, foreign_file(bytes_));
  }
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t version, cursor_.read<uint32_t>("the version"));
  if (version != 0 && (version & 0xffff) == 0) {
    return error(ErrorCode::kUnsupported, "offset 4: version {:#010x} is big-endian; only little-endian files are read",
                 version);
  }
  if (version != kVersion) {
    return error(ErrorCode::kUnsupported, "offset 4: GGUF version {}; supported is {}: convert the file again", version,
                 kVersion);
  }
  HEADWATER_ASSIGN_OR_RETURN(tensor_count_, cursor_.read<uint64_t>("the tensor count"));
  HEADWATER_ASSIGN_OR_RETURN(entry_count_, cursor_.read<uint64_t>("the metadata count"));
  HEADWATER_RETURN_IF_ERROR(check_count(tensor_count_, kTensorBytesMin, 8, "tensors"));
  HEADWATER_RETURN_IF_ERROR(check_count(entry_count_, kEntryBytesMin, 16, "metadata entries"));
  if (tensor_count_ > kTensorsMax) return corrupt(8, "{} tensors; the limit is {}", tensor_count_, kTensorsMax);
  if (entry_count_ > kEntriesMax) return corrupt(16, "{} metadata entries; the limit is {}", entry_count_, kEntriesMax);
  return Status();
}

Status Parser::check_count(uint64_t count, uint64_t item_bytes_min, uint64_t offset, std::string_view what) const {
  const uint64_t count_max = cursor_.remaining() / item_bytes_min;
  if (count <= count_max) return Status();
  return corrupt(offset, "{} {} are claimed; the {} bytes that follow hold at most {}", count, what,
                 cursor_.remaining(), count_max);
}

Status Parser::read_entry() {
  const uint64_t start = cursor_.position();
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view key, cursor_.read_string("a metadata key", kKeyBytesMax));
  if (!is_printable(key)) return corrupt(start, "the metadata key {} is empty or not printable ASCII", quoted(key));
  const std::string name = shown(key);
  if (!contents_.entry_index.emplace(key, contents_.entries.size()).second) {
    return corrupt(start, "metadata key '{}' appears twice", name);
  }
  HEADWATER_ASSIGN_OR_RETURN(const GgufType type, read_type(name));
  GgufFile::Entry entry{key, type, type, 1, 0};
  if (type == GgufType::kArray) {
    HEADWATER_ASSIGN_OR_RETURN(entry.element_type, read_type(name));
    if (entry.element_type == GgufType::kArray) {
      return error(ErrorCode::kUnsupported,
                   "offset {}: metadata key '{}' is an array of arrays; one level is supported", cursor_.position() - 4,
                   name);
    }
    HEADWATER_ASSIGN_OR_RETURN(entry.count, cursor_.read<uint64_t>(name));
    const uint64_t bytes_min = std::max<uint64_t>(scalar_bytes(entry.element_type), 1);
    const bool strings = entry.element_type == GgufType::kString;
    HEADWATER_RETURN_IF_ERROR(check_count(entry.count, strings ? kStringBytesMin : bytes_min, cursor_.position() - 8,
                                          fmt::format("elements of '{}'", name)));
  }
  entry.offset = cursor_.position();
  HEADWATER_RETURN_IF_ERROR(skip_values(entry.element_type, entry.count, name));
  contents_.values.push_back(bytes_.subspan(entry.offset, cursor_.position() - entry.offset));
  contents_.entries.push_back(entry);
  return Status();
}

Result<GgufType> Parser::read_type(std::string_view key) {
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t type, cursor_.read<uint32_t>(key));
  if (type >= std::size(kTypes)) {
    return corrupt(cursor_.position() - 4, "metadata key '{}' has value type {}; known are 0 to {}", key, type,
                   std::size(kTypes) - 1);
  }
  return static_cast<GgufType>(type);
}

Status Parser::skip_values(GgufType type, uint64_t count, std::string_view key) {
  if (type == GgufType::kString) {
    for (uint64_t i = 0; i < count; ++i) {
      HEADWATER_RETURN_IF_ERROR(cursor_.read_string(key, cursor_.remaining()).status());
    }
    return Status();
  }
  const uint64_t start = cursor_.position();
  HEADWATER_RETURN_IF_ERROR(cursor_.skip(count * scalar_bytes(type), key));  // check_count keeps the product small
  if (type != GgufType::kBool) return Status();
  for (uint64_t i = 0; i < count; ++i) {
    const auto value = static_cast<unsigned>(bytes_[start + i]);
    if (value > 1) return corrupt(start + i, "metadata key '{}' has the bool {}; it is 0 or 1", key, value);
  }
  return Status();
}

Status Parser::read_alignment() {
  const auto found = contents_.entry_index.find("general.alignment");
  if (found == contents_.entry_index.end()) return Status();
  const GgufType type = contents_.entries[found->second].type;
  const auto value = contents_.values[found->second];
  const auto offset = static_cast<uint64_t>(value.data() - bytes_.data());
  if (type != GgufType::kU32) return corrupt(offset, "general.alignment is of type {}; it is a u32", to_string(type));
  std::memcpy(&contents_.alignment, value.data(), sizeof(uint32_t));
  if (!std::has_single_bit(contents_.alignment) || contents_.alignment < kAlignmentMin) {
    return corrupt(offset, "general.alignment is {}; it is a power of two of at least {}", contents_.alignment,
                   kAlignmentMin);
  }
  return Status();
}

Status Parser::read_tensor() {
  const uint64_t start = cursor_.position();
  HEADWATER_ASSIGN_OR_RETURN(const std::string_view name, cursor_.read_string("a tensor name", kTensorNameBytesMax));
  if (!is_printable(name)) return corrupt(start, "the tensor name {} is empty or not printable ASCII", quoted(name));
  if (!contents_.tensor_index.emplace(name, contents_.tensors.size()).second) {
    return corrupt(start, "tensor '{}' appears twice", name);
  }
  HEADWATER_ASSIGN_OR_RETURN(std::vector<uint64_t> shape, read_shape(name));
  const uint64_t type_offset = cursor_.position();
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t type, cursor_.read<uint32_t>(name));
  HEADWATER_ASSIGN_OR_RETURN(const DType dtype, dtype_of(type, name, type_offset));
  HEADWATER_ASSIGN_OR_RETURN(const uint64_t data_offset, cursor_.read<uint64_t>(name));

  const uint64_t block = block_elements(dtype);
  const uint64_t columns = shape.empty() ? 1 : shape[0];
  if (columns % block != 0) {
    return corrupt(start, "tensor '{}' has rows of {} elements; {} is stored in blocks of {}", name, columns,
                   headwater::to_string(dtype), block);
  }
  uint64_t bytes = block_bytes(dtype);
  bool wraps = __builtin_mul_overflow(bytes, columns / block, &bytes);
  for (size_t i = 1; i < shape.size(); ++i) wraps |= __builtin_mul_overflow(bytes, shape[i], &bytes);
  if (wraps) return corrupt(start, "tensor '{}' of shape [{}] exceeds 64 bits", name, fmt::join(shape, ", "));

  tensor_bytes_.push_back(bytes);
  contents_.tensors.push_back({name, dtype, std::move(shape), {}, data_offset});
  return Status();
}

Result<std::vector<uint64_t>> Parser::read_shape(std::string_view name) {
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t dimensions, cursor_.read<uint32_t>(name));
  if (dimensions > kDimensionsMax) {
    return corrupt(cursor_.position() - 4, "tensor '{}' has {} dimensions; the limit is {}", name, dimensions,
                   kDimensionsMax);
  }
  std::vector<uint64_t> shape(dimensions);
  for (uint64_t& size : shape) {
    HEADWATER_ASSIGN_OR_RETURN(size, cursor_.read<uint64_t>(name));
    if (size == 0) return corrupt(cursor_.position() - 8, "tensor '{}' has a dimension of 0", name);
  }
  return shape;
}

// Turns each tensor's offset from the data section into a view, now that the section's start is known.
Status Parser::place_tensors() {
  const uint64_t mask = uint64_t{contents_.alignment} - 1;
  const uint64_t data_start = (cursor_.position() + mask) & ~mask;  // a position of mapped memory is far below 2^63
  if (!contents_.tensors.empty() && data_start > bytes_.size()) {
    return corrupt(bytes_.size(), "the file ends where the data of its {} tensors should begin, at {}; it is cut",
                   contents_.tensors.size(), data_start);
  }
  for (size_t i = 0; i < contents_.tensors.size(); ++i) {
    Tensor& tensor = contents_.tensors[i];
    const uint64_t offset = tensor.file_offset;
    if ((offset & mask) != 0) {
      return corrupt(data_start, "tensor '{}' lies at {} in the data section; offsets are multiples of {}", tensor.name,
                     offset, contents_.alignment);
    }
    const uint64_t available = bytes_.size() - data_start;
    if (offset > available || tensor_bytes_[i] > available - offset) {
      return corrupt(data_start,
                     "tensor '{}' needs {} bytes from {} of a data section of {}; the file is cut or damaged",
                     tensor.name, tensor_bytes_[i], offset, available);
    }
    tensor.file_offset = data_start + offset;
    tensor.data = bytes_.subspan(tensor.file_offset, tensor_bytes_[i]);
  }
  return check_overlaps();
}

// Holes, another order than the list's and bytes behind the last tensor change nothing; llama.cpp refuses the first two.
Status Parser::check_overlaps() const {
  std::vector<const Tensor*> in_file;
  for (const Tensor& tensor : contents_.tensors) in_file.push_back(&tensor);
  std::ranges::sort(in_file, {}, &Tensor::file_offset);
  for (size_t i = 1; i < in_file.size(); ++i) {
    const Tensor &before = *in_file[i - 1], &tensor = *in_file[i];
    const uint64_t end = before.file_offset + before.data.size();
    if (tensor.file_offset >= end) continue;
    return corrupt(tensor.file_offset, "tensor '{}' begins within tensor '{}', which lies from {} to {}", tensor.name,
                   before.name, before.file_offset, end);
  }
  return Status();
}

}  // namespace

std::optional<DType> gguf_dtype(uint32_t number) {
  if (number >= std::size(kTensorTypes)) return std::nullopt;
  const std::optional<DType> dtype = dtype_named(kTensorTypes[number]);
  return dtype && is_weight_type(*dtype) ? dtype : std::nullopt;
}

std::optional<uint32_t> gguf_number(DType dtype) {
  const auto* found = std::ranges::find(kTensorTypes, std::string_view(headwater::to_string(dtype)));
  if (!is_weight_type(dtype) || found == std::end(kTensorTypes)) return std::nullopt;
  return static_cast<uint32_t>(found - kTensorTypes);
}

const char* to_string(GgufType type) {
  return kTypes[static_cast<size_t>(type)].name;
}
uint32_t scalar_bytes(GgufType type) {
  return kTypes[static_cast<size_t>(type)].bytes;
}

Result<GgufContents> parse_gguf(std::span<const std::byte> bytes) {
  return Parser(bytes).parse();
}

}  // namespace headwater::model
