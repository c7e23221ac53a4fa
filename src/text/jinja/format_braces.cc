// "{} {name:>8}".format(values).
#include <algorithm>

#include "text/jinja/access.h"
#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(const Call& call, std::span<const Value> values, const Dict* named)
      : call_(call), values_(values), named_(named) {}

  // is_inner: within the format of a place, whose own format is then as it stands.
  Result<Text> run(const Text& format, bool is_inner) {
    HEADWATER_RETURN_IF_ERROR(call_.step(format.size()));
    const std::string& bytes = format.bytes();
    Text out;
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format, at, brace);
      if (brace == bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        out.append(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      const size_t end = closing_brace(bytes, brace);
      if (bytes[brace] == '}' || end == std::string::npos) return call_.wrong("a single brace in a format");
      HEADWATER_ASSIGN_OR_RETURN(const Text text, place(format.slice(brace + 1, end), is_inner));
      HEADWATER_RETURN_IF_ERROR(call_.build(text.footprint()));
      out.append(text);
      at = end + 1;
    }
    return out;
  }

 private:
  static size_t closing_brace(std::string_view bytes, size_t open) {
    size_t depth = 0;
    for (size_t at = open; at < bytes.size(); ++at) {
      depth += bytes[at] == '{';
      if (bytes[at] == '}' && --depth == 0) return at;
    }
    return std::string_view::npos;
  }

  // name[!conversion][:format]
  Result<Text> place(const Text& text, bool is_inner) {
    const std::string& bytes = text.bytes();
    size_t at = 0;
    for (bool in_brackets = false; at < bytes.size() && (in_brackets || (bytes[at] != '!' && bytes[at] != ':')); ++at) {
      in_brackets = bytes[at] == '[' || (in_brackets && bytes[at] != ']');
    }
    HEADWATER_ASSIGN_OR_RETURN(Value value, value_at(std::string_view(bytes).substr(0, at)));
    if (at < bytes.size() && bytes[at] == '!') {
      HEADWATER_ASSIGN_OR_RETURN(value, converted(value, std::string_view(bytes).substr(at + 1, 1)));
      at += 2;
    }
    if (at < bytes.size() && bytes[at] != ':') return call_.wrong("the place {{{}}} of a format", bytes);
    if (at + 1 >= bytes.size()) return to_text(call_, value);
    Text spec = text.slice(at + 1, bytes.size());
    if (!is_inner) {
      HEADWATER_ASSIGN_OR_RETURN(spec, run(spec, true));
    }
    HEADWATER_ASSIGN_OR_RETURN(const FormatSpec parsed, parse_format_spec(call_, spec));
    return format_value(call_, value, parsed);
  }

  Result<Value> converted(const Value& value, std::string_view conversion) {
    if (conversion != "r" && conversion != "s") return call_.unsupported("conversions other than !r and !s");
    HEADWATER_ASSIGN_OR_RETURN(Text text, conversion == "r" ? to_repr(call_, value) : to_text(call_, value));
    return make_text(call_, std::move(text));
  }

  // 0.attribute[key]
  Result<Value> value_at(std::string_view path) {
    const size_t first = std::min(path.find_first_of(".["), path.size());
    HEADWATER_ASSIGN_OR_RETURN(Value value, argument(path.substr(0, first)));
    for (path.remove_prefix(first); !path.empty();) {
      const bool is_key = path[0] == '[';
      const size_t end = is_key ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (end == std::string_view::npos || end == 1) return call_.wrong("\"{}\" in a place of a format", path);
      const std::string_view name = path.substr(1, end - 1);
      const auto index = is_key ? index_of(name) : std::nullopt;
      if (is_key) {
        HEADWATER_ASSIGN_OR_RETURN(
            value, subscript(call_, value, index ? Value::of_size(*index) : Value::of_text(Text(name, true))));
      } else {
        HEADWATER_ASSIGN_OR_RETURN(value, attribute(call_, value, name));
      }
      path.remove_prefix(end + is_key);
    }
    return value;
  }

  static std::optional<size_t> index_of(std::string_view digits) {
    size_t at = 0;
    const size_t index = read_width(digits, at);
    return !digits.empty() && at == digits.size() ? std::optional(index) : std::nullopt;
  }

  Result<Value> argument(std::string_view name) {
    const auto number = index_of(name);
    if (!name.empty() && !number) {
      if (named_ != nullptr) HEADWATER_RETURN_IF_ERROR(call_.step(named_->scan_bytes()));
      const Value* found = named_ == nullptr ? nullptr : named_->find(name);
      if (found == nullptr) return call_.wrong("the format's \"{}\" is given no value", name);
      return *found;
    }
    has_numbers_ = has_numbers_ || number;
    const size_t index = number ? *number : counted_++;
    if (has_numbers_ && counted_ > 0) return call_.wrong("a format has places with and without numbers");
    if (index >= values_.size()) return call_.wrong("the format has more places than there are values");
    return values_[index];
  }

  const Call& call_;
  std::span<const Value> values_;
  const Dict* named_;
  size_t counted_ = 0;  // places without a number
  bool has_numbers_ = false;
};

}  // namespace

Result<Value> format_braces(const Call& call, const Text& format, std::span<const Value> values, const Dict* named) {
  if (format.is_safe()) return call.unsupported("a safe string cannot be a format here");
  HEADWATER_ASSIGN_OR_RETURN(Text text, BraceFormatter(call, values, named).run(format, false));
  return make_text(call, std::move(text));
}

}  // namespace headwater::text::jinja
