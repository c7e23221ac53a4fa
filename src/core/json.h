// JSON of files that describe a model: untrusted, so bounded in depth and memory; the nodes are Boost.JSON's.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/result.h"

namespace headwater::json {

using Value = boost::json::value;

// kCorrupt names `what` ("config.json"), the offset and what was found there. Nesting of at most 64; UTF-8 is checked; of a
// name that stands twice in an object the last counts, as in Python. No single piece of memory is larger than twice the
// text and 16 MiB.
Result<Value> parse(std::string_view text, std::string_view what);

// The first name that stands twice in the outermost object of `text`, which parse() has taken; none when all differ.
// Names are compared as they are written, escapes included.
std::optional<std::string_view> repeated_name(std::string_view text);

// The member of that name; null when `object` is no object, has none, or has a null there.
const Value* find(const Value& object, std::string_view name);

// The string of that name; empty when find() gives none or something else.
std::string_view text_at(const Value& object, std::string_view name);

// An integer that is not negative; none for anything else, 3.0 included.
std::optional<uint64_t> to_unsigned(const Value& value);

}  // namespace headwater::json
