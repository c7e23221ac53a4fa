#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/strings.h"

namespace headwater::text::jinja {
namespace {

using Arguments = std::span<const Value>;

template <bool (*kHolds)(const Value&)>
Result<Value> test(const Call&, Arguments arguments) {
  return Value::of_bool(kHolds(arguments[0]));
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
bool is_sequence(const Value& value) {
  return is_string(value) || value.list() != nullptr || is_mapping(value) || value.is_undefined();
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

// The subject of a string method.
Result<const Text*> subject(const Call& call, const Value& value) {
  if (value.text() != nullptr) return value.text();
  return error_at(call.where, ErrorCode::kUnsupported, "a method of strings is called on {}", value.type_name());
}

template <bool kLeft, bool kRight>
Result<Value> strip_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, subject(call, arguments[0]));
  return strip_text(call, *text, arguments[1], kLeft, kRight);
}

template <bool kUpper>
Result<Value> case_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, subject(call, arguments[0]));
  return change_case(call, *text, kUpper);
}

template <bool kStart>
Result<Value> affix_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, subject(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* affix, subject(call, arguments[1]));
  HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, affix->size()));
  return Value::of_bool(kStart ? text->bytes().starts_with(affix->bytes()) : text->bytes().ends_with(affix->bytes()));
}

Result<Value> split_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, subject(call, arguments[0]));
  return split_text(call, *text, arguments[1]);
}

Result<Value> replace_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, subject(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(subject(call, arguments[1]).status());
  HEADWATER_RETURN_IF_ERROR(subject(call, arguments[2]).status());
  return replace_text(call, *text, arguments[1], arguments[2]);
}

Result<Value> get_method(const Call& call, Arguments arguments) {
  const Dict* dict = arguments[0].dict();
  if (dict == nullptr) {
    return error_at(call.where, ErrorCode::kUnsupported, "get() is called on {}", arguments[0].type_name());
  }
  HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, dict->entries.size() * sizeof(Text)));
  const Value* found = arguments[1].text() == nullptr ? nullptr : dict->find(arguments[1].text()->bytes());
  if (found != nullptr) return *found;
  return arguments[2].is_undefined() ? Value::none() : arguments[2];
}

Result<Value> range_function(const Call& call, Arguments arguments) {
  int64_t bounds[3] = {0, 0, 1};
  const size_t given = static_cast<size_t>(std::count_if(arguments.begin(), arguments.end(), is_defined));
  for (size_t i = 0; i < given; ++i) {
    if (arguments[i].integer() == nullptr) {
      return error_at(call.where, ErrorCode::kInvalidArgument, "range() takes integers, not {}",
                      arguments[i].type_name());
    }
    bounds[given == 1 ? 1 : i] = *arguments[i].integer();
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return error_at(call.where, ErrorCode::kInvalidArgument, "the step of range() is 0");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where));
    items.push_back(Value::of_int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(call.where, call.budget, std::move(items));
}

Result<Value> raise_function(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text message, to_text(call.where, arguments[0]));
  return Status(ErrorCode::kInvalidArgument, message.bytes());
}

const Builtin* find(const std::vector<Builtin>& table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& known) { return known.name == name; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace

const Builtin* find_filter(std::string_view name) {
  static const std::vector<Builtin> kFilters = {
      {"default", {"value", "default_value", "boolean"}, 1, default_filter},
      {"first", {"seq"}, 1, first_filter},
      {"int", {"value", "default"}, 1, int_filter},
      {"join", {"value", "d"}, 1, join_filter},
      {"last", {"seq"}, 1, last_filter},
      {"length", {"object"}, 1, length_filter},
      {"list", {"value"}, 1, list_filter},
      {"lower", {"s"}, 1, lower_filter},
      {"replace", {"s", "old", "new"}, 3, replace_filter},
      {"string", {"object"}, 1, string_filter},
      {"trim", {"value", "chars"}, 1, trim_filter},
      {"upper", {"s"}, 1, upper_filter},
  };
  return find(kFilters, name);
}

const Builtin* find_test(std::string_view name) {
  static const std::vector<Builtin> kTests = {
      {"boolean", {"value"}, 1, test<is_boolean>},     {"defined", {"value"}, 1, test<is_defined>},
      {"false", {"value"}, 1, test<is_false>},         {"float", {"value"}, 1, test<is_float>},
      {"integer", {"value"}, 1, test<is_integer>},     {"iterable", {"value"}, 1, test<is_sequence>},
      {"mapping", {"value"}, 1, test<is_mapping>},     {"none", {"value"}, 1, test<is_none>},
      {"number", {"value"}, 1, test<is_number>},       {"sequence", {"value"}, 1, test<is_sequence>},
      {"string", {"value"}, 1, test<is_string>},       {"true", {"value"}, 1, test<is_true>},
      {"undefined", {"value"}, 1, test<is_undefined>},
  };
  return find(kTests, name);
}

const Builtin* find_method(std::string_view name) {
  static const std::vector<Builtin> kMethods = {
      {"endswith", {"", "suffix"}, 2, affix_method<false>},
      {"get", {"", "key", "default"}, 2, get_method},
      {"lower", {""}, 1, case_method<false>},
      {"lstrip", {"", "chars"}, 1, strip_method<true, false>},
      {"replace", {"", "old", "new"}, 3, replace_method},
      {"rstrip", {"", "chars"}, 1, strip_method<false, true>},
      {"split", {"", "sep"}, 1, split_method},
      {"startswith", {"", "prefix"}, 2, affix_method<true>},
      {"strip", {"", "chars"}, 1, strip_method<true, true>},
      {"upper", {""}, 1, case_method<true>},
  };
  return find(kMethods, name);
}

const Builtin* find_function(std::string_view name) {
  static const std::vector<Builtin> kFunctions = {
      {"raise_exception", {"message"}, 1, raise_function},
      {"range", {"start", "stop", "step"}, 1, range_function},
  };
  return find(kFunctions, name);
}

bool is_python_attribute(std::string_view name) {
  static constexpr std::string_view kNames[] = {"append",       "as_integer_ratio",
                                                "bit_count",    "bit_length",
                                                "capitalize",   "casefold",
                                                "center",       "clear",
                                                "conjugate",    "copy",
                                                "count",        "denominator",
                                                "encode",       "endswith",
                                                "expandtabs",   "extend",
                                                "find",         "format",
                                                "format_map",   "from_bytes",
                                                "fromhex",      "fromkeys",
                                                "get",          "hex",
                                                "imag",         "index",
                                                "insert",       "is_integer",
                                                "isalnum",      "isalpha",
                                                "isascii",      "isdecimal",
                                                "isdigit",      "isidentifier",
                                                "islower",      "isnumeric",
                                                "isprintable",  "isspace",
                                                "istitle",      "isupper",
                                                "items",        "join",
                                                "keys",         "ljust",
                                                "lower",        "lstrip",
                                                "maketrans",    "numerator",
                                                "partition",    "pop",
                                                "popitem",      "real",
                                                "remove",       "removeprefix",
                                                "removesuffix", "replace",
                                                "reverse",      "rfind",
                                                "rindex",       "rjust",
                                                "rpartition",   "rsplit",
                                                "rstrip",       "setdefault",
                                                "sort",         "split",
                                                "splitlines",   "startswith",
                                                "strip",        "swapcase",
                                                "title",        "to_bytes",
                                                "translate",    "update",
                                                "upper",        "values",
                                                "zfill"};
  return name.starts_with("__") || std::binary_search(std::begin(kNames), std::end(kNames), name);
}

}  // namespace headwater::text::jinja
