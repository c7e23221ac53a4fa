// Operators on values; their meaning is Python's, as seen through jinja2's sandbox.
#pragma once

#include "text/jinja/ast.h"

namespace headwater::text::jinja {

Result<Value> arithmetic(const Call& call, Operator operation, const Value& left, const Value& right);
Result<Value> negate(const Call& call, const Value& value);
Result<bool> compare(const Call& call, Operator comparison, const Value& left, const Value& right);

}  // namespace headwater::text::jinja
