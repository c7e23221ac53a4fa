// "%s: %d" % values.
#include <algorithm>
#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/format_spec.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(const Call& call, const Text& format, std::span<const Value> values, const Dict* named)
      : call_(call), format_(format), values_(values), named_(named) {}

  Result<Value> run() {
    HEADWATER_RETURN_IF_ERROR(call_.step(format_.size()));
    const std::string& bytes = format_.bytes();
    while (true) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      out_.append(format_, at_, percent);
      at_ = percent + 1;
      if (percent == bytes.size()) break;
      if (peek() == '%') {
        out_.append(format_, at_, at_ + 1);
        ++at_;
        continue;
      }
      HEADWATER_RETURN_IF_ERROR(write_next());
    }
    if (next_ < values_.size() && named_ == nullptr) return call_.wrong("not all values find a place in the format");
    return make_text(call_, std::move(out_));
  }

 private:
  char peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  Result<Value> next_value() {
    if (next_ == values_.size()) return call_.wrong("the format has more places than there are values");
    return values_[next_++];
  }

  // Of "(name)", at which at_ stands.
  Result<Value> named_value() {
    const size_t end = format_.bytes().find(')', at_);
    if (named_ == nullptr || end == std::string::npos) return call_.wrong("%(name)s takes its value from a mapping");
    const std::string name = format_.bytes().substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    HEADWATER_RETURN_IF_ERROR(call_.step(named_->scan_bytes()));
    const Value* found = named_->find(name);
    if (found == nullptr) return call_.wrong("the format's \"{}\" is no key of the mapping", name);
    return *found;
  }

  Result<FormatSpec> read_spec() {
    FormatSpec spec;
    const bool is_owned = format_.is_owned(at_ - 1);
    spec.fill = Text(" ", is_owned);
    spec.align = '>';
    bool has_zeros = false;
    for (; peek() == '-' || peek() == '0' || peek() == '+' || peek() == ' ' || peek() == '#'; ++at_) {
      if (peek() == '-') spec.align = '<';
      if (peek() == '0') has_zeros = true;
      if (peek() == '#') spec.alternate = true;
      if (peek() == '+' || (peek() == ' ' && spec.sign != '+')) spec.sign = peek();
    }
    spec.width = read_width(format_.bytes(), at_);
    if (peek() == '.') {
      ++at_;
      spec.precision = read_width(format_.bytes(), at_);
    }
    spec.type = peek();
    ++at_;
    if (std::max(spec.width, spec.precision.value_or(0)) > FormatSpec::kWidthMax) {
      return call_.unsupported("a format is at most {} wide here", FormatSpec::kWidthMax);
    }
    if (has_zeros && spec.align == '>' && spec.type != 's' && spec.type != 'r') {
      spec.align = '=';
      spec.fill = Text("0", is_owned);
    }
    return spec;
  }

  Status write_next() {
    Value value;
    const bool is_named = peek() == '(';
    if (is_named) {
      HEADWATER_ASSIGN_OR_RETURN(value, named_value());
    }
    HEADWATER_ASSIGN_OR_RETURN(FormatSpec spec, read_spec());
    if (!is_named) {
      HEADWATER_ASSIGN_OR_RETURN(value, next_value());
    }
    HEADWATER_ASSIGN_OR_RETURN(value, prepared(value, spec));
    HEADWATER_ASSIGN_OR_RETURN(const Text text, format_value(call_, value, spec));
    HEADWATER_RETURN_IF_ERROR(call_.build(text.footprint()));
    out_.append(text);
    return {};
  }

  // The value as the type takes it: a text for %s and %r, an integer for %d.
  Result<Value> prepared(const Value& value, FormatSpec& spec) {
    const auto number = number_of(value);
    if (spec.precision && std::string_view("diuxXo").find(spec.type) != std::string_view::npos) {
      return call_.unsupported("a precision of %{}", spec.type);
    }
    switch (spec.type) {
      case 's':
      case 'r': {
        HEADWATER_ASSIGN_OR_RETURN(Text text, spec.type == 's' ? to_text(call_, value) : to_repr(call_, value));
        spec.type = 's';
        spec.sign = '-';
        spec.alternate = false;
        return Value::of_text(std::move(text));
      }
      case 'd':
      case 'i':
      case 'u':
        spec.type = 'd';
        spec.alternate = false;
        if (!number || !number->is_float) break;
        if (!std::isfinite(number->floating)) return call_.wrong("%d of a number that is not finite");
        if (std::fabs(number->floating) >= 0x1p63) return call_.unsupported("the integer does not fit 64 bits");
        return Value::of_int(static_cast<int64_t>(number->floating));
      case 'x':
      case 'X':
      case 'o':
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        break;
      default:
        return call_.unsupported("formats other than %s %r %d %i %u %x %X %o %e %f %g");
    }
    if (!number) return call_.wrong("%{} of {}", spec.type, value.type_name());
    return value;
  }

  const Call& call_;
  const Text& format_;
  std::span<const Value> values_;
  const Dict* named_;
  size_t next_ = 0;
  size_t at_ = 0;
  Text out_;
};

}  // namespace

Result<Value> format_percent(const Call& call, const Text& format, const Value& values) {
  if (format.is_safe()) return call.unsupported("a safe string cannot be a format here");
  const bool is_tuple = values.list() != nullptr && values.list()->kind == ListKind::kTuple;
  const std::span<const Value> items = is_tuple ? std::span(values.list()->items) : std::span(&values, 1);
  return PercentFormatter(call, format, items, values.dict()).run();
}

}  // namespace headwater::text::jinja
