// The tests: x is defined.
#include "text/jinja/builtins.h"
#include "text/jinja/operators.h"

namespace headwater::text::jinja {
namespace {

template <bool (*kHolds)(const Value&)>
Result<Value> test(const Call&, Arguments arguments) {
  return Value::of_bool(kHolds(arguments[0]));
}

template <Operator kComparison>
Result<Value> comparison(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const bool holds, compare(call, kComparison, arguments[0], arguments[1]));
  return Value::of_bool(holds);
}

bool is_defined(const Value& value) {
  return !value.is_undefined();
}
bool is_undefined(const Value& value) {
  return value.is_undefined();
}
bool is_none(const Value& value) {
  return value.is_none();
}
bool is_string(const Value& value) {
  return value.text() != nullptr;
}
bool is_mapping(const Value& value) {
  return value.dict() != nullptr;
}
bool is_iterable(const Value& value) {
  return is_string(value) || value.list() != nullptr || is_mapping(value) || value.is_undefined() ||
         value.loop() != nullptr;
}
bool is_sequence(const Value& value) {
  return is_iterable(value) && value.loop() == nullptr && (value.list() == nullptr || value.list()->has_places());
}
bool is_number(const Value& value) {
  return number_of(value).has_value();
}
bool is_boolean(const Value& value) {
  return value.boolean() != nullptr;
}
bool is_integer(const Value& value) {
  return value.integer() != nullptr;
}
bool is_float(const Value& value) {
  return value.floating() != nullptr;
}
bool is_true(const Value& value) {
  return is_boolean(value) && *value.boolean();
}
bool is_false(const Value& value) {
  return is_boolean(value) && !*value.boolean();
}
bool is_callable(const Value& value) {
  return value.is_callable() || value.is_undefined();  // as Python's jinja2
}

Result<Value> divisible_test(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Value rest, arithmetic(call, Operator::kModulo, arguments[0], arguments[1]));
  return Value::of_bool(!rest.truth());
}

template <int kRest>
Result<Value> parity_test(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Value rest, arithmetic(call, Operator::kModulo, arguments[0], Value::of_int(2)));
  const auto number = number_of(rest);
  return Value::of_bool(number && number->floating == kRest);
}

// Whether both are one object of Python's, where that can be told: equal numbers and strings may be one object or two.
Result<Value> same_test(const Call& call, Arguments arguments) {
  const Value& value = arguments[0];
  const Value& other = arguments[1];
  if (value.is_same_object(other)) return Value::of_bool(true);
  const bool is_singleton = is_boolean(value) || value.is_none() || is_boolean(other) || other.is_none();
  const bool is_mutable = value.list() != nullptr ? value.list()->kind != ListKind::kTuple : value.dict() != nullptr;
  if (value.type_name() != other.type_name() || is_mutable) return Value::of_bool(false);
  HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, value, other));
  if (!same || is_singleton) return Value::of_bool(same);
  const int64_t* integer = value.integer();
  if (integer != nullptr && *integer >= -5 && *integer <= 256) return Value::of_bool(true);  // Python keeps one of each
  return call.unsupported("whether equal values, here {}, are one object is not known here; use \"==\"",
                          value.type_name());
}

}  // namespace

const Builtin* find_test(std::string_view name) {
  using enum Operator;
  static const Builtin kTests[] = {
      {"!=", {"a", "b"}, 2, comparison<kNotEqual>},
      {"<", {"a", "b"}, 2, comparison<kLess>},
      {"<=", {"a", "b"}, 2, comparison<kLessEqual>},
      {"==", {"a", "b"}, 2, comparison<kEqual>},
      {">", {"a", "b"}, 2, comparison<kGreater>},
      {">=", {"a", "b"}, 2, comparison<kGreaterEqual>},
      {"boolean", {"value"}, 1, test<is_boolean>},
      {"callable", {"object"}, 1, test<is_callable>},
      {"defined", {"value"}, 1, test<is_defined>},
      {"divisibleby", {"value", "num"}, 2, divisible_test},
      {"eq", {"a", "b"}, 2, comparison<kEqual>},
      {"equalto", {"a", "b"}, 2, comparison<kEqual>},
      {"even", {"value"}, 1, parity_test<0>},
      {"false", {"value"}, 1, test<is_false>},
      {"float", {"value"}, 1, test<is_float>},
      {"ge", {"a", "b"}, 2, comparison<kGreaterEqual>},
      {"greaterthan", {"a", "b"}, 2, comparison<kGreater>},
      {"gt", {"a", "b"}, 2, comparison<kGreater>},
      {"in", {"value", "seq"}, 2, comparison<kIn>},
      {"integer", {"value"}, 1, test<is_integer>},
      {"iterable", {"value"}, 1, test<is_iterable>},
      {"le", {"a", "b"}, 2, comparison<kLessEqual>},
      {"lessthan", {"a", "b"}, 2, comparison<kLess>},
      {"lt", {"a", "b"}, 2, comparison<kLess>},
      {"mapping", {"value"}, 1, test<is_mapping>},
      {"ne", {"a", "b"}, 2, comparison<kNotEqual>},
      {"none", {"value"}, 1, test<is_none>},
      {"number", {"value"}, 1, test<is_number>},
      {"odd", {"value"}, 1, parity_test<1>},
      {"sameas", {"value", "other"}, 2, same_test},
      {"sequence", {"value"}, 1, test<is_sequence>},
      {"string", {"value"}, 1, test<is_string>},
      {"true", {"value"}, 1, test<is_true>},
      {"undefined", {"value"}, 1, test<is_undefined>},
  };
  return find(kTests, name);
}

}  // namespace headwater::text::jinja
