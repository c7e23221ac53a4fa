// The value of a quoted string in a template.
#pragma once

#include <string>
#include <string_view>

#include "text/jinja/position.h"

namespace headwater::text::jinja {

// body: between the quotes, valid UTF-8. Escapes are Python's; octal and \N{...} are kUnsupported.
Result<std::string> unescape(std::string_view body, Position where);

}  // namespace headwater::text::jinja
