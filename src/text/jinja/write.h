// Values as text: Python's str() and repr(), and json.dumps().
#pragma once

#include <optional>
#include <string>

#include "text/jinja/value.h"

namespace headwater::text::jinja {

// What {{ value }} writes. kUnsupported for what Python writes with an address, such as a generator.
Result<Text> to_text(const Call& call, const Value& value);
// Python's repr(): strings in quotes.
Result<Text> to_repr(const Call& call, const Value& value);
// Appends it, and takes its bytes from the budget before.
Status append_text(const Call& call, const Value& value, Text& out);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<Text> indent;  // of one level; without it everything stands in one line
  Text item_separator = Text(", ", true);
  Text key_separator = Text(": ", true);
};
// kInvalidArgument for what JSON has not: undefined values, generators, namespaces.
Result<Text> to_json(const Call& call, const Value& value, const JsonStyle& style);

// & < > " ' as HTML entities.
Text escaped(const Text& text);

}  // namespace headwater::text::jinja
