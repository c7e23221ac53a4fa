// Operations on marked strings that filters, methods and subscripts share.
#pragma once

#include <span>
#include <vector>

#include "text/jinja/builtins.h"

namespace headwater::text::jinja {

// Byte offsets of the characters of valid UTF-8, and one behind the last.
std::vector<size_t> character_offsets(std::string_view text);

Result<Value> strip_text(const Call& call, const Text& text, const Value& set, bool left, bool right);
Result<Value> change_case(const Call& call, const Text& text, bool upper);  // kUnsupported outside ASCII
Result<Value> replace_text(const Call& call, const Text& text, const Value& from, const Value& to);
Result<Value> split_text(const Call& call, const Text& text, const Value& separator);
Result<bool> contains_text(const Call& call, const Text& text, const Text& part);

}  // namespace headwater::text::jinja
