#include "model/gguf_text.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/shown.h"
#include "model/gguf_cursor.h"
#include "model/gguf_parser.h"

namespace headwater::model {
namespace {

constexpr uint64_t kArrayElementsShown = 4;

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

}  // namespace

GgufScalar load_scalar(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kU8:
      return uint64_t{load<uint8_t>(at)};
    case GgufType::kI8:
      return int64_t{load<int8_t>(at)};
    case GgufType::kU16:
      return uint64_t{load<uint16_t>(at)};
    case GgufType::kI16:
      return int64_t{load<int16_t>(at)};
    case GgufType::kU32:
      return uint64_t{load<uint32_t>(at)};
    case GgufType::kI32:
      return int64_t{load<int32_t>(at)};
    case GgufType::kF32:
      return double{load<float>(at)};
    case GgufType::kBool:
      return load<uint8_t>(at) != 0;
    case GgufType::kU64:
      return load<uint64_t>(at);
    case GgufType::kI64:
      return load<int64_t>(at);
    case GgufType::kF64:
      return load<double>(at);
    case GgufType::kString:
    case GgufType::kArray:
      break;
  }
  check(false, "load_scalar of a string or an array");
  return uint64_t{0};
}

std::string describe_value(const GgufFile::Entry& entry, std::span<const std::byte> value, size_t characters_max) {
  const bool is_array = entry.type == GgufType::kArray;
  std::string out = is_array ? fmt::format("[{}]", entry.count) : "";
  GgufCursor cursor(value);
  size_t characters_left = characters_max;
  for (uint64_t i = 0; i < entry.count; ++i) {
    if (is_array && (i == kArrayElementsShown || characters_left == 0)) return out + ", ...";
    if (is_array) out += i == 0 ? " " : ", ";
    if (entry.element_type == GgufType::kString) {
      const auto text = cursor.read_string(entry.key, cursor.remaining());
      out += quoted(text.value(), characters_left);
      characters_left -= std::min(characters_left, text->size());
      continue;
    }
    const std::byte* at = value.data() + cursor.position();
    const Status skipped = cursor.skip(scalar_bytes(entry.element_type), entry.key);
    check(skipped.is_ok(), "a checked value is shorter than its type");
    const GgufScalar scalar = load_scalar(entry.element_type, at);
    const bool is_f32 = entry.element_type == GgufType::kF32;
    out +=
        is_f32 ? fmt::format("{}", load<float>(at)) : std::visit([](auto v) { return fmt::format("{}", v); }, scalar);
  }
  return out;
}

}  // namespace headwater::model
