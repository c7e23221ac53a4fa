// JSON as values of the template language. No string of it is the template's own.
#pragma once

#include "core/json.h"
#include "text/jinja/value.h"

namespace headwater::text::jinja {

// kExhausted where it nests too deep. Invalid UTF-8 is replaced by U+FFFD.
Result<Value> from_json(const Call& call, const json::Value& json);

}  // namespace headwater::text::jinja
