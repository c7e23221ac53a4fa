#include "server/openai/json_text.h"

#include <boost/json/basic_parser_impl.hpp>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "server/openai/decode.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
constexpr size_t kQuotedBytesMax = 80;

// The longest front of a text that has at most kQuotedBytesMax bytes and ends with a whole character.
std::string_view front_of(std::string_view text) {
  if (text.size() <= kQuotedBytesMax) return text;
  size_t end = kQuotedBytesMax;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Builds the value from the parser's events, and refuses what the library's own handler would let through.
class Builder {
 public:
  static constexpr size_t max_object_size = kJsonValuesMax;
  static constexpr size_t max_array_size = kJsonValuesMax;
  static constexpr size_t max_string_size = json::string::max_size();
  static constexpr size_t max_key_size = json::string::max_size();
  using Error = boost::system::error_code;
  using View = json::string_view;

  Builder() { stack_.reset(); }
  json::value release() { return stack_.release(); }
  const std::string& refusal() const { return refusal_; }

  bool on_document_begin(Error&) { return true; }
  bool on_document_end(Error&) { return true; }
  bool on_array_begin(Error& failed) { return count(failed); }
  bool on_array_end(size_t size, Error&) {
    stack_.push_array(size);
    return true;
  }
  bool on_object_begin(Error& failed) {
    if (++depth_ > keys_.size()) keys_.emplace_back();
    keys_[depth_ - 1].clear();
    return count(failed);
  }
  bool on_object_end(size_t size, Error&) {
    --depth_;
    stack_.push_object(size);
    return true;
  }
  bool on_string_part(View part, size_t, Error&) {
    stack_.push_chars(part);
    return true;
  }
  bool on_string(View rest, size_t, Error& failed) {
    stack_.push_string(rest);
    return count(failed);
  }
  bool on_key_part(View part, size_t, Error&) {
    key_.append(part.data(), part.size());
    stack_.push_chars(part);
    return true;
  }
  bool on_key(View rest, size_t, Error& failed) {
    key_.append(rest.data(), rest.size());
    stack_.push_key(rest);
    if (!keys_[depth_ - 1].insert(key_).second) {
      refusal_ = fmt::format("the body has \"{}\" twice in one object; give it once", cut_text(key_));
      failed = json::error::exception;
    }
    key_.clear();
    return !failed;
  }
  bool on_number_part(View, Error&) { return true; }
  bool on_int64(int64_t number, View, Error& failed) {
    stack_.push_int64(number);
    return count(failed);
  }
  bool on_uint64(uint64_t number, View, Error& failed) {
    stack_.push_uint64(number);
    return count(failed);
  }
  bool on_double(double number, View, Error& failed) {
    stack_.push_double(number);
    return count(failed);
  }
  bool on_bool(bool value, Error& failed) {
    stack_.push_bool(value);
    return count(failed);
  }
  bool on_null(Error& failed) {
    stack_.push_null();
    return count(failed);
  }
  bool on_comment_part(View, Error&) { return true; }
  bool on_comment(View, Error&) { return true; }

 private:
  bool count(Error& failed) {
    if (++values_ <= kJsonValuesMax) return true;
    refusal_ = fmt::format("the body has more than {} JSON values; send less in one request", kJsonValuesMax);
    failed = json::error::exception;
    return false;
  }

  json::value_stack stack_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects, the outermost first
  size_t depth_ = 0;                                   // open objects
  std::string key_;                                    // the parts of the key being read
  size_t values_ = 0;
  std::string refusal_;
};

}  // namespace

std::optional<ApiError> parse_json(std::string_view text, json::value& out) {
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::basic_parser<Builder> parser(options);
  boost::system::error_code failed;
  const size_t read = parser.write_some(false, text.data(), text.size(), failed);
  if (!failed && read < text.size()) failed = json::error::extra_data;
  if (!failed) {
    out = parser.handler().release();
    return std::nullopt;
  }
  ApiError error;
  if (!parser.handler().refusal().empty()) {
    error.message = parser.handler().refusal();
  } else if (failed == json::error::too_deep) {
    error.message = fmt::format("the body is nested deeper than {} levels", kJsonDepthMax);
  } else {
    error.message = fmt::format("the body is not valid JSON in UTF-8: {} near byte {}", failed.message(), read);
  }
  return error;
}

std::string cut_text(std::string_view text) {
  const std::string_view front = front_of(text);
  return front.size() == text.size() ? std::string(text) : std::string(front) + "...";
}

std::string quoted(const json::value& value) {
  char buffer[kQuotedBytesMax + 1];  // one byte more tells whether something is cut
  json::serializer serializer;
  serializer.reset(&value);
  const json::string_view text = serializer.read(buffer, sizeof(buffer));
  return cut_text(std::string_view(text.data(), text.size()));
}

ApiError wrong_value(std::string_view field, const json::value& value, std::string_view expected) {
  return {.message = fmt::format("\"{}\" is {}; expected {}", field, quoted(value), expected),
          .param = std::string(field)};
}

}  // namespace headwater::server::openai
