// "%s: %d" % values and "{} {name:>8}".format(values): Python's two ways to format.
#pragma once

#include <span>

#include "text/jinja/value.h"

namespace headwater::text::jinja {

// Conversions s r d i u f F e E g G x X o and %%, with the flags "-", "0", "+", " " and "#", a width, a precision, and
// %(name)s of a mapping. values: a tuple of as many, or one value.
Result<Value> format_percent(const Call& call, const Text& format, const Value& values);
// {} {0} {name} {0.attribute} {0[key]} with !r, !s and a format of format_spec.h, in which {} may stand; {{ and }}.
// named: null where no argument has a name.
Result<Value> format_braces(const Call& call, const Text& format, std::span<const Value> values, const Dict* named);

}  // namespace headwater::text::jinja
