// What templates may call: filters (x|trim), tests (x is defined), methods (x.strip()) and functions (range(3)). The
// names, parameters and meanings are jinja2's and Python's.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "text/jinja/value.h"

namespace headwater::text::jinja {

using Arguments = std::span<const Value>;

// Filters, tests and methods take their subject as the first argument. There are always parameters.size() arguments;
// an optional one that is not given is missing. As in Python, the parameter "*" takes what else is given by place, as a
// tuple, and "**" what else is given by name, as a mapping; a parameter "" has no name.
struct Builtin {
  std::string_view name;
  std::vector<std::string_view> parameters;
  size_t required;
  Result<Value> (*apply)(const Call& call, Arguments arguments);
};

// What the parameter "*" was given.
Arguments rest_of(const Value& tuple);

// nullptr where there is none of that name.
const Builtin* find_filter(std::string_view name);
const Builtin* find_test(std::string_view name);
const Builtin* find_method(std::string_view name);
const Builtin* find_function(std::string_view name);

// In a table of one kind.
const Builtin* find(std::span<const Builtin> table, std::string_view name);

}  // namespace headwater::text::jinja
