// x.name, x[key] and x[begin:end:step]. What jinja2 finds nothing for is undefined; only an undefined x is an error.
#pragma once

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

Result<Value> attribute(const Call& call, const Value& object, std::string_view name);
Result<Value> subscript(const Call& call, const Value& object, const Value& key);
// A bound that is none is missing.
Result<Value> slice(const Call& call, const Value& object, const Value& begin, const Value& end, const Value& step);

}  // namespace headwater::text::jinja
