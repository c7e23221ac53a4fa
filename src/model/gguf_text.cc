#include "model/gguf_text.h"

#include <cstring>
#include <string_view>

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

// Bytes of the printable UTF-8 character that `text` begins with; 0 when it begins with a control character or with
// what is not UTF-8. (Overlong forms pass: they are printed, never interpreted.)
size_t printable_bytes(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return lead >= 0x20 && lead != 0x7f ? 1 : 0;
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i) {
    if ((static_cast<uint8_t>(text[i]) & 0xc0) != 0x80) return 0;
  }
  const bool control = lead == 0xc2 && static_cast<uint8_t>(text[1]) < 0xa0;  // U+0080 to U+009F
  return control ? 0 : bytes;
}

// Appends at most `characters_max` characters of `text`, quoted; lowers it by what was used.
void append_quoted(std::string_view text, size_t& characters_max, std::string& out) {
  out += '"';
  while (!text.empty() && characters_max > 0) {
    const size_t bytes = printable_bytes(text);
    if (text[0] == '\n') {
      out += "\\n";
    } else if (text[0] == '"' || text[0] == '\\') {
      out += {'\\', text[0]};
    } else if (bytes == 0) {
      out += fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else {
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
    --characters_max;
  }
  out += text.empty() ? "\"" : "...\"";
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
      append_quoted(text.value(), characters_left, out);
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
