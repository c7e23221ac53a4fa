// The methods of strings, dicts and lists, and which names they have in Python.
#pragma once

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

std::span<const Builtin> methods();

// Whether Python's object has an attribute of that name, which then hides the key of a dict: x.items is no key of x.
bool has_attribute(const Value& object, std::string_view name);

}  // namespace headwater::text::jinja
