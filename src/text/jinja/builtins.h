// What templates may call: filters (x|trim), tests (x is defined), methods (x.strip()) and functions (range(3)).
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/value.h"

namespace headwater::text::jinja {

struct Call {
  Position where;
  Budget& budget;
};

// Filters, tests and methods take their subject as the first argument. There are always parameters.size() arguments;
// an optional one that is missing is undefined.
struct Builtin {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required;
  Result<Value> (*apply)(const Call& call, std::span<const Value> arguments);
};

// nullptr where there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(std::string_view name);
const Builtin* find_function(std::string_view name);

// The names to which Python's strings, lists, dicts and numbers answer themselves: x.items is no key of x.
bool is_python_attribute(std::string_view name);

// Items of a list, keys of a dict, characters of a string; none for undefined. kInvalidArgument for other values.
Result<std::vector<Value>> items_of(const Call& call, const Value& value);

}  // namespace headwater::text::jinja
