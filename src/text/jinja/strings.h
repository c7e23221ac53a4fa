// Operations on marked strings that filters, methods and subscripts share.
#pragma once

#include <vector>

#include "text/jinja/value.h"

namespace headwater::text::jinja {

// Byte offsets of the characters of valid UTF-8, and one behind the last.
std::vector<size_t> character_offsets(std::string_view text);

// set: the characters to strip; none or missing for white space.
Result<Value> strip_text(const Call& call, const Text& text, const Value& set, bool left, bool right);
// At most count_max places; all where it is negative.
Result<Value> replace_text(const Call& call, const Text& text, const Text& from, const Text& to, int64_t count_max);
// At most count_max cuts, from the left or from the right; all where it is negative. Separator: none for white space.
Result<Value> split_text(const Call& call, const Text& text, const Value& separator, int64_t count_max,
                         bool from_right);
// The lines of a text, as Python's splitlines() sees them: [begin, end) is the line, [end, next) what ends it.
struct Line {
  size_t begin;
  size_t end;
  size_t next;
};
std::vector<Line> lines_of(std::string_view text);
Result<Value> split_lines(const Call& call, const Text& text, bool keep_ends);
Result<bool> contains_text(const Call& call, const Text& text, const Text& part);
// Searching takes, at worst, a comparison of part at every place.
Status charge_search(const Call& call, const Text& text, const Text& part, bool from_right = false);

}  // namespace headwater::text::jinja
