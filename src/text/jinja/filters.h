// The filters of one value.
#pragma once

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

std::span<const Builtin> filters();

}  // namespace headwater::text::jinja
