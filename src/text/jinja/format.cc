#include "text/jinja/format.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

constexpr size_t kWidthMax = 1000;

struct Directive {
  bool left = false;
  bool zeros = false;
  size_t width = 0;
  std::optional<size_t> precision;
  char kind = '\0';
};

class PercentFormatter {
 public:
  PercentFormatter(const Call& call, const Text& format, std::span<const Value> values)
      : call_(call), format_(format), values_(values) {}

  Result<Value> run() {
    HEADWATER_RETURN_IF_ERROR(call_.step(format_.size()));
    const std::string& bytes = format_.bytes();
    while (true) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      if (percent == bytes.size()) break;
      if (bytes[std::min(at_, bytes.size() - 1)] == '%' && at_ < bytes.size()) {
        out_.append(format_, at_, at_ + 1);
        ++at_;
        continue;
      }
      HEADWATER_RETURN_IF_ERROR(write_next());
    }
    if (next_ < values_.size()) return call_.wrong("not all values find a place in the format");
    return make_text(call_, std::move(out_));
  }

 private:
  char peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  size_t read_number() {
    size_t number = 0;
    for (; peek() >= '0' && peek() <= '9'; ++at_)
      number = std::min(number * 10 + static_cast<size_t>(peek() - '0'), kWidthMax + 1);
    return number;
  }

  Result<Directive> read_directive() {
    Directive directive;
    for (; peek() == '-' || peek() == '0'; ++at_) (peek() == '-' ? directive.left : directive.zeros) = true;
    directive.width = read_number();
    if (peek() == '.') {
      ++at_;
      directive.precision = read_number();
    }
    directive.kind = peek();
    ++at_;
    if (directive.width > kWidthMax || directive.precision.value_or(0) > kWidthMax) {
      return call_.unsupported("a format is at most {} wide here", kWidthMax);
    }
    return directive;
  }

  Status write_next() {
    HEADWATER_ASSIGN_OR_RETURN(const Directive directive, read_directive());
    if (next_ == values_.size()) return call_.wrong("the format has more places than there are values");
    HEADWATER_ASSIGN_OR_RETURN(const Text text, convert(directive, values_[next_++]));
    HEADWATER_RETURN_IF_ERROR(call_.build(text.footprint() + directive.width));
    const size_t length = count_characters(text.bytes());
    const size_t blanks = directive.width > length ? directive.width - length : 0;
    if (!directive.left) out_.append(std::string(blanks, ' '), true);
    out_.append(text);
    if (directive.left) out_.append(std::string(blanks, ' '), true);
    return {};
  }

  Result<Text> convert(const Directive& directive, const Value& value) {
    switch (directive.kind) {
      case 's':
        if (directive.precision) break;
        return to_text(call_, value);
      case 'r': {
        if (directive.precision) break;
        HEADWATER_ASSIGN_OR_RETURN(const Value list, make_list(call_, {value}));
        HEADWATER_ASSIGN_OR_RETURN(const Text text, to_text(call_, list));  // [repr]
        return text.slice(1, text.size() - 1);
      }
      case 'd':
      case 'i':
      case 'f':
        return convert_number(directive, value);
      default:
        break;
    }
    return call_.unsupported("formats other than %s %r %d %i %f");
  }

  Result<Text> convert_number(const Directive& directive, const Value& value) {
    const auto number = number_of(value);
    if (!number) return call_.wrong("%{} of {}", directive.kind, value.type_name());
    if (!std::isfinite(number->floating))
      return call_.unsupported("%{} of a number that is not finite", directive.kind);
    const size_t width = directive.zeros && !directive.left ? directive.width : 0;
    if (directive.kind == 'f') {
      return Text(fmt::format("{:0{}.{}f}", number->floating, width, directive.precision.value_or(6)), true);
    }
    if (directive.precision || std::fabs(number->floating) >= 0x1p63)
      return call_.unsupported("%{} of this", directive.kind);
    const int64_t integer = number->is_float ? static_cast<int64_t>(number->floating) : number->integer;
    return Text(fmt::format("{:0{}}", integer, width), true);
  }

  const Call& call_;
  const Text& format_;
  std::span<const Value> values_;
  size_t next_ = 0;
  size_t at_ = 0;
  Text out_;
};

}  // namespace

Result<Value> format_percent(const Call& call, const Text& format, const Value& values) {
  if (format.is_safe()) return call.unsupported("a safe string cannot be a format here");
  if (values.dict() != nullptr) return call.unsupported("a mapping cannot fill a format here");
  const bool is_tuple = values.list() != nullptr && values.list()->kind == ListKind::kTuple;
  const std::span<const Value> items = is_tuple ? std::span(values.list()->items) : std::span(&values, 1);
  return PercentFormatter(call, format, items).run();
}

Result<Value> format_braces(const Call& call, const Text& format, std::span<const Value> values) {
  if (format.is_safe()) return call.unsupported("a safe string cannot be a format here");
  HEADWATER_RETURN_IF_ERROR(call.step(format.size()));
  const std::string& bytes = format.bytes();
  Text out;
  size_t counted = 0;  // places without a number
  bool has_numbers = false;
  for (size_t at = 0; at < bytes.size();) {
    const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
    out.append(format, at, brace);
    if (brace == bytes.size()) break;
    const size_t end = bytes.find('}', brace);
    if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
      out.append(format, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    if (bytes[brace] == '}' || end == std::string::npos) return call.wrong("a single brace in a format");
    const std::string_view place = std::string_view(bytes).substr(brace + 1, end - brace - 1);
    const bool is_number = place.size() == 1 && place[0] >= '0' && place[0] <= '9';
    if (!place.empty() && !is_number) return call.unsupported("the place {{{}}} of a format", place);
    has_numbers = has_numbers || is_number;
    const size_t index = is_number ? static_cast<size_t>(place[0] - '0') : counted++;
    if (has_numbers && counted > 0) return call.wrong("a format has places with and without numbers");
    if (index >= values.size()) return call.wrong("the format has more places than there are values");
    HEADWATER_RETURN_IF_ERROR(append_text(call, values[index], out));
    at = end + 1;
  }
  return make_text(call, std::move(out));
}

}  // namespace headwater::text::jinja
