// Recursive descent over the tokens of a template; grammar and precedence are jinja2's.
#pragma once

#include "text/jinja/ast.h"

namespace headwater::text::jinja {

// kInvalidArgument for what is no template, kUnsupported for what jinja2 knows and we do not, kExhausted for
// more than tokens_max tokens and what nests deeper than depth_max. source is valid UTF-8.
Result<Template> parse_template(std::string_view source, uint32_t tokens_max, uint32_t depth_max);

}  // namespace headwater::text::jinja
