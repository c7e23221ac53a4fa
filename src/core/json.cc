#include "core/json.h"

#include <boost/json/memory_resource.hpp>
#include <boost/json/parser.hpp>
#include <new>
#include <unordered_set>

namespace headwater::json {
namespace {

constexpr size_t kDepthMax = 64;
constexpr size_t kAllocationSlack = size_t{16} << 20;

// A value takes more memory than its text: "0," becomes 24 bytes. A limit on single pieces ends what a short text can ask
// for, and lets real files pass, whose strings are most of them.
class BoundedMemory final : public boost::json::memory_resource {
 public:
  explicit BoundedMemory(size_t bytes_max) : bytes_max_(bytes_max) {}

 private:
  // Alignments are below the default one, and Boost gives back a string with another than it took it with.
  void* do_allocate(size_t bytes, size_t) override {
    if (bytes > bytes_max_) throw std::bad_alloc();
    return ::operator new(bytes);
  }
  void do_deallocate(void* memory, size_t, size_t) override { ::operator delete(memory); }
  bool do_is_equal(const boost::json::memory_resource& other) const noexcept override { return this == &other; }

  size_t bytes_max_;
};

}  // namespace

Result<Value> parse(std::string_view text, std::string_view what) {
  boost::json::parse_options options;
  options.max_depth = kDepthMax;
  const auto memory = boost::json::make_shared_resource<BoundedMemory>(2 * text.size() + kAllocationSlack);
  try {
    boost::json::parser parser(memory, options);
    parser.reset(memory);
    boost::system::error_code failed;
    const size_t offset = parser.write_some(text.data(), text.size(), failed);
    if (!failed && offset == text.size()) return parser.release();
    if (failed == boost::json::error::incomplete) {
      return error(ErrorCode::kCorrupt, "{}: the JSON ends at offset {} before it is complete", what, text.size());
    }
    const std::string found = offset < text.size() ? fmt::format("byte {:#04x}", static_cast<uint8_t>(text[offset]))
                                                   : std::string("the end of the text");
    return error(ErrorCode::kCorrupt, "{}: not JSON from offset {}, found {} ({})", what, offset, found,
                 failed ? failed.message() : "text after the value");
  } catch (const std::exception&) {  // bad_alloc, or a size beyond Boost's own limits
    return error(ErrorCode::kCorrupt, "{}: one array or object of its {} bytes needs more than {} bytes of memory",
                 what, text.size(), 2 * text.size() + kAllocationSlack);
  }
}

std::optional<std::string_view> repeated_name(std::string_view text) {
  std::unordered_set<std::string_view> names;
  std::string_view last;  // string
  size_t depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (c == ':' && depth == 1 && !names.insert(last).second) return last;
    if (c != '"') continue;
    const size_t begin = ++i;
    while (text[i] != '"') i += text[i] == '\\' ? 2 : 1;
    last = text.substr(begin, i - begin);
  }
  return std::nullopt;
}

const Value* find(const Value& object, std::string_view name) {
  if (!object.is_object()) return nullptr;
  const Value* member = object.get_object().if_contains(name);
  return member == nullptr || member->is_null() ? nullptr : member;
}

std::string_view text_at(const Value& object, std::string_view name) {
  const Value* value = find(object, name);
  return value != nullptr && value->is_string() ? std::string_view(value->get_string()) : std::string_view();
}

std::optional<uint64_t> to_unsigned(const Value& value) {
  if (value.is_uint64()) return value.get_uint64();
  if (value.is_int64() && value.get_int64() >= 0) return static_cast<uint64_t>(value.get_int64());
  return std::nullopt;
}

}  // namespace headwater::json
