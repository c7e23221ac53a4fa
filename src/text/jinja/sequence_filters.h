// The filters of lists, dicts and other sequences.
#pragma once

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

std::span<const Builtin> sequence_filters();

// Items of a list, keys of a dict, characters of a string; none for undefined. Reads a generator to its end.
// kInvalidArgument for other values.
Result<std::vector<Value>> items_of(const Call& call, const Value& value);
// The number of them; kInvalidArgument for what has no length, such as a generator.
Result<size_t> length_of(const Call& call, const Value& value);

// (key, value), ...
Result<std::vector<Value>> pairs_of(const Call& call, const Dict& dict);

}  // namespace headwater::text::jinja
