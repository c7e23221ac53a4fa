#include "text/jinja/operators.h"

#include <cmath>

#include "text/jinja/format.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/strings.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

const char* spelling(Operator operation) {
  static constexpr const char* kSpellings[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSpellings[static_cast<size_t>(operation)];
}

Status overflow(const Call& call) {
  return call.unsupported("the integer does not fit 64 bits");
}

Result<Value> integer_arithmetic(const Call& call, Operator operation, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool divides = operation == Operator::kFloorDivide || operation == Operator::kModulo;
  if (divides && a == INT64_MIN && b == -1) return overflow(call);
  switch (operation) {
    case Operator::kAdd:
      return __builtin_add_overflow(a, b, &result) ? Result<Value>(overflow(call)) : Value::of_int(result);
    case Operator::kSubtract:
      return __builtin_sub_overflow(a, b, &result) ? Result<Value>(overflow(call)) : Value::of_int(result);
    case Operator::kMultiply:
      return __builtin_mul_overflow(a, b, &result) ? Result<Value>(overflow(call)) : Value::of_int(result);
    case Operator::kFloorDivide:
      return Value::of_int(a / b - (a % b != 0 && (a < 0) != (b < 0)));
    default:
      return Value::of_int(a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0));
  }
}

// By squaring. A negative exponent gives a float.
Result<Value> integer_power(const Call& call, int64_t base, int64_t exponent) {
  int64_t result = 1;
  int64_t square = base;
  for (int64_t rest = exponent; rest > 0; rest /= 2) {
    if (rest % 2 == 1 && __builtin_mul_overflow(result, square, &result)) return overflow(call);
    if (rest > 1 && __builtin_mul_overflow(square, square, &square)) return overflow(call);
  }
  return Value::of_int(result);
}

Result<Value> power(const Call& call, const Number& base, const Number& exponent) {
  if (base.floating == 0 && exponent.floating < 0) return call.wrong("0 has no negative power");
  if (!base.is_float && !exponent.is_float && exponent.integer >= 0) {
    return integer_power(call, base.integer, exponent.integer);
  }
  const double result = std::pow(base.floating, exponent.floating);
  if (!std::isfinite(result) && std::isfinite(base.floating) && std::isfinite(exponent.floating)) {
    return call.unsupported("a power that is no finite number");
  }
  return Value::of_float(result);
}

Result<Value> number_arithmetic(const Call& call, Operator operation, const Number& a, const Number& b) {
  if (operation == Operator::kPower) return power(call, a, b);
  const bool divides =
      operation == Operator::kDivide || operation == Operator::kFloorDivide || operation == Operator::kModulo;
  if (divides && b.floating == 0) return call.wrong("division by zero");
  if (operation == Operator::kDivide) return Value::of_float(a.floating / b.floating);
  if (!a.is_float && !b.is_float) return integer_arithmetic(call, operation, a.integer, b.integer);
  switch (operation) {
    case Operator::kAdd:
      return Value::of_float(a.floating + b.floating);
    case Operator::kSubtract:
      return Value::of_float(a.floating - b.floating);
    case Operator::kMultiply:
      return Value::of_float(a.floating * b.floating);
    default:
      break;
  }
  // Python's: the rest has the sign of the divisor.
  double rest = std::fmod(a.floating, b.floating);
  if (rest != 0 && (rest < 0) != (b.floating < 0)) rest += b.floating;
  if (operation == Operator::kModulo) return Value::of_float(rest);
  return Value::of_float(std::round((a.floating - rest) / b.floating));
}

Result<Value> repeat(const Call& call, const Text& text, int64_t count) {
  if (count <= 0 || text.empty()) return Value::of_text(Text());
  const uint64_t each = text.size() + (text.runs().size() - 1) * sizeof(Text::Run);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(each, static_cast<uint64_t>(count), &bytes)) bytes = UINT64_MAX;
  HEADWATER_RETURN_IF_ERROR(call.build(bytes));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(bytes));  // dearer than a copy: a few letters ask for any amount of memory
  Text result;
  for (Text power = text; count > 0; count /= 2) {  // the text twice, four times, ... as often
    if (count % 2 == 1) result.append(power);
    if (count > 1) power.append(Text(power));
  }
  result.set_safe(text.is_safe());
  return Value::of_text(std::move(result));
}

Result<Value> repeat(const Call& call, const List& list, int64_t count) {
  if (list.kind != ListKind::kList && list.kind != ListKind::kTuple) return call.wrong("\"*\" takes a list or a tuple");
  const uint64_t times = count <= 0 || list.items.empty() ? 0 : static_cast<uint64_t>(count);
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(list.items.size() * sizeof(Value), times, &bytes)) bytes = UINT64_MAX / 2;
  HEADWATER_RETURN_IF_ERROR(call.build(bytes));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(bytes));
  std::vector<Value> items;
  for (uint64_t i = 0; i < times; ++i) items.insert(items.end(), list.items.begin(), list.items.end());
  return make_list(call, std::move(items), list.kind);
}

Result<Value> add_texts(const Call& call, const Text& left, const Text& right) {
  HEADWATER_RETURN_IF_ERROR(call.build(left.footprint() + right.footprint()));
  HEADWATER_RETURN_IF_ERROR(call.step(left.size() + right.size()));
  const bool is_safe = left.is_safe() || right.is_safe();
  if (is_safe) HEADWATER_RETURN_IF_ERROR(call.rewrite(left.size() + right.size()));
  Text sum = is_safe && !left.is_safe() ? escaped(left) : left;
  sum.append(is_safe && !right.is_safe() ? escaped(right) : right);
  return Value::of_text(std::move(sum));
}

Result<Value> add_lists(const Call& call, const List& left, const List& right) {
  const bool can_add = left.kind == right.kind && (left.kind == ListKind::kList || left.kind == ListKind::kTuple);
  if (!can_add) return call.wrong("\"+\" takes two lists or two tuples");
  HEADWATER_RETURN_IF_ERROR(call.step((left.items.size() + right.items.size()) * sizeof(Value)));
  std::vector<Value> items = left.items;
  items.insert(items.end(), right.items.begin(), right.items.end());
  return make_list(call, std::move(items), left.kind);
}

Result<bool> contains(const Call& call, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      return call.wrong("{} is looked for in a string", item.type_name());
    }
    return contains_text(call, *text, *item.text());
  }
  if (const Dict* dict = container.dict()) {
    HEADWATER_RETURN_IF_ERROR(call.step(dict->scan_bytes()));
    return dict->find(item) != nullptr;
  }
  if (container.list() != nullptr) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> items, items_of(call, container));
    for (const Value& held : items) {
      HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, held, item));
      if (same) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return call.wrong("{} contains nothing", container.type_name());
}

}  // namespace

Result<Value> arithmetic(const Call& call, Operator operation, const Value& left, const Value& right) {
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return number_arithmetic(call, operation, *a, *b);
  if (operation == Operator::kAdd && left.text() != nullptr && right.text() != nullptr) {
    return add_texts(call, *left.text(), *right.text());
  }
  if (operation == Operator::kAdd && left.list() != nullptr && right.list() != nullptr) {
    return add_lists(call, *left.list(), *right.list());
  }
  if (operation == Operator::kModulo && left.text() != nullptr) return format_percent(call, *left.text(), right);
  if (operation == Operator::kMultiply) {
    if (left.text() != nullptr && b && !b->is_float) return repeat(call, *left.text(), b->integer);
    if (right.text() != nullptr && a && !a->is_float) return repeat(call, *right.text(), a->integer);
    if (left.list() != nullptr && b && !b->is_float) return repeat(call, *left.list(), b->integer);
    if (right.list() != nullptr && a && !a->is_float) return repeat(call, *right.list(), a->integer);
  }
  return call.wrong("\"{}\" does not take {} and {} here", spelling(operation), left.type_name(), right.type_name());
}

Result<Value> negate(const Call& call, const Value& value) {
  const auto number = number_of(value);
  if (!number) return call.wrong("the sign of {}", value.type_name());
  if (number->is_float) return Value::of_float(-number->floating);
  return integer_arithmetic(call, Operator::kSubtract, 0, number->integer);
}

Result<bool> compare(const Call& call, Operator comparison, const Value& left, const Value& right) {
  const bool is_negated = comparison == Operator::kNotEqual || comparison == Operator::kLessEqual ||
                          comparison == Operator::kGreaterEqual || comparison == Operator::kNotIn;
  Result<bool> result = false;
  switch (comparison) {
    case Operator::kIn:
    case Operator::kNotIn:
      result = contains(call, right, left);
      break;
    case Operator::kLess:
    case Operator::kGreaterEqual:
      result = less(call, left, right);
      break;
    case Operator::kGreater:
    case Operator::kLessEqual:
      result = less(call, right, left);
      break;
    default:
      result = equal(call, left, right);
      break;
  }
  if (!result) return result;
  return *result != is_negated;
}

}  // namespace headwater::text::jinja
