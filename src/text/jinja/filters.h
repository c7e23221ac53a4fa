// The filters; their parameters are listed in builtins.cc, their meaning is jinja2's.
#pragma once

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

Result<Value> default_filter(const Call& call, std::span<const Value> arguments);
Result<Value> first_filter(const Call& call, std::span<const Value> arguments);
Result<Value> int_filter(const Call& call, std::span<const Value> arguments);
Result<Value> join_filter(const Call& call, std::span<const Value> arguments);
Result<Value> last_filter(const Call& call, std::span<const Value> arguments);
Result<Value> length_filter(const Call& call, std::span<const Value> arguments);
Result<Value> list_filter(const Call& call, std::span<const Value> arguments);
Result<Value> lower_filter(const Call& call, std::span<const Value> arguments);
Result<Value> replace_filter(const Call& call, std::span<const Value> arguments);
Result<Value> string_filter(const Call& call, std::span<const Value> arguments);
Result<Value> trim_filter(const Call& call, std::span<const Value> arguments);
Result<Value> upper_filter(const Call& call, std::span<const Value> arguments);

}  // namespace headwater::text::jinja
