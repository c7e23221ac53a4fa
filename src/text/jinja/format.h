// "%s: %d" % values and "{} {name}".format(values): the parts of Python's two ways to format that templates use.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "text/jinja/value.h"

namespace headwater::text::jinja {

// %s %r %d %i %f and %%, with the flags "-" and "0", a width and a precision. values: a tuple of as many, or one value.
Result<Value> format_percent(const Call& call, const Text& format, const Value& values);
// {} and {0}, and {{ and }}; conversions, formats, names and attributes are kUnsupported.
Result<Value> format_braces(const Call& call, const Text& format, std::span<const Value> values);

}  // namespace headwater::text::jinja
