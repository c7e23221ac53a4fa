#include "text/jinja/operators.h"

#include "text/jinja/strings.h"

namespace headwater::text::jinja {
namespace {

const char* spelling(Operator operation) {
  static constexpr const char* kSpellings[] = {
      "+", "-", "*", "/", "//", "%", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSpellings[static_cast<size_t>(operation)];
}

Status overflow(const Call& call) {
  return error_at(call.where, ErrorCode::kUnsupported, "the integer does not fit 64 bits");
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

Result<Value> number_arithmetic(const Call& call, Operator operation, const Number& a, const Number& b) {
  const bool divides =
      operation == Operator::kDivide || operation == Operator::kFloorDivide || operation == Operator::kModulo;
  if (divides && b.floating == 0) return error_at(call.where, ErrorCode::kInvalidArgument, "division by zero");
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
      return error_at(call.where, ErrorCode::kUnsupported, "{} of floats is not known here", spelling(operation));
  }
}

Result<Value> repeat(const Call& call, const Text& text, int64_t count) {
  Text result;
  for (int64_t i = 0; i < count && !text.empty(); ++i) {
    HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, text.footprint()));
    result.append(text);
  }
  return Value::of_text(std::move(result));
}

Result<bool> contains(const Call& call, const Value& container, const Value& item) {
  if (const Text* text = container.text()) {
    if (item.text() == nullptr) {
      return error_at(call.where, ErrorCode::kInvalidArgument, "{} is looked for in a string", item.type_name());
    }
    return contains_text(call, *text, *item.text());
  }
  if (const Dict* dict = container.dict()) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, dict->entries.size() * sizeof(Text)));
    return item.text() != nullptr && dict->find(item.text()->bytes()) != nullptr;
  }
  if (const List* list = container.list()) {
    for (const Value& held : list->items) {
      HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call.where, call.budget, held, item));
      if (same) return true;
    }
    return false;
  }
  if (container.is_undefined()) return false;
  return error_at(call.where, ErrorCode::kInvalidArgument, "{} contains nothing", container.type_name());
}

}  // namespace

Result<Value> arithmetic(const Call& call, Operator operation, const Value& left, const Value& right) {
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return number_arithmetic(call, operation, *a, *b);
  if (operation == Operator::kAdd && left.text() != nullptr && right.text() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.budget.build(call.where, left.text()->footprint() + right.text()->footprint()));
    Text sum = *left.text();
    sum.append(*right.text());
    return Value::of_text(std::move(sum));
  }
  if (operation == Operator::kAdd && left.list() != nullptr && right.list() != nullptr) {
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return make_list(call.where, call.budget, std::move(items));
  }
  if (operation == Operator::kMultiply && left.text() != nullptr && b && !b->is_float) {
    return repeat(call, *left.text(), b->integer);
  }
  const bool formats = operation == Operator::kModulo && left.text() != nullptr;
  const bool repeats = operation == Operator::kMultiply && ((a && !a->is_float) || (b && !b->is_float));
  return error_at(call.where, formats || repeats ? ErrorCode::kUnsupported : ErrorCode::kInvalidArgument,
                  "\"{}\" does not take {} and {} here", spelling(operation), left.type_name(), right.type_name());
}

Result<Value> negate(const Call& call, const Value& value) {
  const auto number = number_of(value);
  if (!number) return error_at(call.where, ErrorCode::kInvalidArgument, "the sign of {}", value.type_name());
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
      result = less(call.where, call.budget, left, right);
      break;
    case Operator::kGreater:
    case Operator::kLessEqual:
      result = less(call.where, call.budget, right, left);
      break;
    default:
      result = equal(call.where, call.budget, left, right);
      break;
  }
  if (!result) return result;
  return *result != is_negated;
}

}  // namespace headwater::text::jinja
