#include "text/jinja/methods.h"

#include <utf8proc.h>

#include <algorithm>

#include "text/jinja/format.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/strings.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

Result<const Text*> text_of(const Call& call, const Value& value) {
  if (value.text() != nullptr) return value.text();
  return call.wrong("a method of strings is given {}", value.type_name());
}

Result<const Dict*> dict_of(const Call& call, const Value& value) {
  if (value.dict() != nullptr) return value.dict();
  return call.wrong("a method of mappings is called on {}", value.type_name());
}

bool is_among(std::string_view categories, char32_t c) {
  return categories.find(utf8proc_category_string(static_cast<utf8proc_int32_t>(c))[0]) != std::string_view::npos;
}
std::optional<bool> is_alphabetic(char32_t c) {
  return is_among("L", c);
}
std::optional<bool> is_alphanumeric(char32_t c) {
  return is_among("LN", c);
}
std::optional<bool> is_decimal(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c)) == UTF8PROC_CATEGORY_ND;
}
std::optional<bool> is_digit(char32_t c) {  // raised and circled digits are some, Roman ones none
  if (is_among("N", c) && !*is_decimal(c)) return std::nullopt;
  return is_decimal(c);
}
std::optional<bool> is_blank(char32_t c) {
  return is_white_space(c);
}

template <bool kLeft, bool kRight>
Result<Value> strip_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  return strip_text(call, *text, arguments[1], kLeft, kRight);
}

template <LetterCase kCase>
Result<Value> case_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(Text changed, with_case(call, *text, kCase));
  return Value::of_text(std::move(changed));
}

// One affix, or any of a tuple.
template <bool kStart>
Result<Value> affix_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  const List* several = arguments[1].list();
  if (several != nullptr && several->kind != ListKind::kTuple) return call.wrong("affixes are a string or a tuple");
  for (const Value& value : several != nullptr ? std::span(several->items) : arguments.subspan(1)) {
    HEADWATER_ASSIGN_OR_RETURN(const Text* affix, text_of(call, value));
    HEADWATER_RETURN_IF_ERROR(call.step(affix->size()));
    if (kStart ? text->bytes().starts_with(affix->bytes()) : text->bytes().ends_with(affix->bytes())) {
      return Value::of_bool(true);
    }
  }
  return Value::of_bool(false);
}

template <bool kStart>
Result<Value> remove_affix_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* affix, text_of(call, arguments[1]));
  HEADWATER_ASSIGN_OR_RETURN(const Value has, affix_method<kStart>(call, arguments));
  if (!has.truth()) return arguments[0];
  return make_text(call,
                   kStart ? text->slice(affix->size(), text->size()) : text->slice(0, text->size() - affix->size()));
}

template <bool kFromRight>
Result<Value> split_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  return split_text(call, *text, arguments[1], integer_of(arguments[2]).value_or(-1), kFromRight);
}

Result<Value> splitlines_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  return split_lines(call, *text, arguments[1].truth());
}

Result<Value> replace_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* from, text_of(call, arguments[1]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* to, text_of(call, arguments[2]));
  return replace_text(call, *text, *from, *to, integer_of(arguments[3]).value_or(-1));
}

// The place of a part in characters; without it -1, or an error. index() also finds an item of a list.
template <bool kFromRight, bool kMustBeThere>
Result<Value> find_method(const Call& call, Arguments arguments) {
  if (const List* list = arguments[0].list(); list != nullptr && kMustBeThere && !kFromRight) {
    for (size_t i = 0; i < list->items.size(); ++i) {
      HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, list->items[i], arguments[1]));
      if (same) return Value::of_size(i);
    }
    return call.wrong("index() of an item that the list has not");
  }
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* part, text_of(call, arguments[1]));
  HEADWATER_RETURN_IF_ERROR(charge_search(call, *text, *part, kFromRight));
  const size_t at = kFromRight ? text->bytes().rfind(part->bytes()) : text->bytes().find(part->bytes());
  if (at == std::string::npos && kMustBeThere) return call.wrong("index() of a text that the string has not");
  if (at == std::string::npos) return Value::of_int(-1);
  return Value::of_size(count_characters(std::string_view(text->bytes()).substr(0, at)));
}

// What is before a part, the part, and what is behind it.
template <bool kFromRight>
Result<Value> partition_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* part, text_of(call, arguments[1]));
  if (part->empty()) return call.wrong("partition() needs a separator that is not empty");
  HEADWATER_RETURN_IF_ERROR(charge_search(call, *text, *part, kFromRight));
  const size_t found = kFromRight ? text->bytes().rfind(part->bytes()) : text->bytes().find(part->bytes());
  const size_t at = found != std::string::npos ? found : kFromRight ? 0 : text->size();
  const size_t end = found == std::string::npos ? at : at + part->size();
  HEADWATER_ASSIGN_OR_RETURN(Value before, make_text(call, text->slice(0, at)));
  HEADWATER_ASSIGN_OR_RETURN(Value middle, make_text(call, found == std::string::npos ? Text() : *part));
  HEADWATER_ASSIGN_OR_RETURN(Value behind, make_text(call, text->slice(end, text->size())));
  return make_list(call, {std::move(before), std::move(middle), std::move(behind)}, ListKind::kTuple);
}

// Whether there are characters and all are of a kind; nothing where that is not known here.
template <std::optional<bool> (*kIsOfKind)(char32_t)>
Result<Value> kind_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(call.rewrite(2 * text->size()));
  bool are_all = !text->empty();
  for (std::string_view rest = text->bytes(); are_all && !rest.empty();) {
    const Utf8Character character = first_character(rest);
    const std::optional<bool> is_of_kind = kIsOfKind(character.code_point);
    if (!is_of_kind) {
      return call.unsupported("the kind of the character U+{:04X} is not known here",
                              static_cast<uint32_t>(character.code_point));
    }
    are_all = *is_of_kind;
    rest.remove_prefix(character.bytes);
  }
  return Value::of_bool(are_all);
}

Result<Value> cycle_method(const Call& call, Arguments arguments) {
  const Loop* loop = arguments[0].loop();
  const Arguments values = rest_of(arguments[1]);
  if (loop == nullptr || values.empty()) return call.wrong("cycle() is a loop's, and takes values");
  return values[loop->index % values.size()];
}

// Of a part in a string, or of an item in a list.
Result<Value> count_method(const Call& call, Arguments arguments) {
  int64_t count = 0;
  if (const List* list = arguments[0].list()) {
    for (const Value& item : list->items) {
      HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, item, arguments[1]));
      count += same;
    }
    return Value::of_int(count);
  }
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text* part, text_of(call, arguments[1]));
  HEADWATER_RETURN_IF_ERROR(charge_search(call, *text, *part));
  if (part->empty()) return Value::of_size(count_characters(text->bytes()) + 1);
  for (size_t at = 0; (at = text->bytes().find(part->bytes(), at)) != std::string::npos; at += part->size()) ++count;
  return Value::of_int(count);
}

Result<Value> join_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* separator, text_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> items, items_of(call, arguments[1]));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const Text* item, text_of(call, items[i]));
    HEADWATER_RETURN_IF_ERROR(call.build(item->footprint() + separator->footprint()));
    if (i > 0) result.append(*separator);
    result.append(*item);
  }
  return Value::of_text(std::move(result));
}

Result<Value> format_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text* text, text_of(call, arguments[0]));
  return format_braces(call, *text, rest_of(arguments[1]), arguments[2].dict());
}

Result<Value> get_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Dict* dict, dict_of(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(call.step(dict->scan_bytes()));
  const Value* found = dict->find(arguments[1]);
  if (found != nullptr) return *found;
  return arguments[2].is_missing() ? Value::none() : arguments[2];
}

Result<Value> items_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Dict* dict, dict_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> pairs, pairs_of(call, *dict));
  return make_list(call, std::move(pairs), ListKind::kView);
}

template <bool kKeys>
Result<Value> side_method(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Dict* dict, dict_of(call, arguments[0]));
  HEADWATER_RETURN_IF_ERROR(call.step(dict->scan_bytes()));
  std::vector<Value> side;
  for (const auto& [key, value] : dict->entries) side.push_back(kKeys ? key : value);
  return make_list(call, std::move(side), ListKind::kView);
}

// Python's sandbox refuses them too; templates that call them cannot run there.
Result<Value> changing_method(const Call& call, Arguments) {
  return call.wrong("lists and mappings cannot be changed; make a new one");
}

}  // namespace

std::span<const Builtin> methods() {
  static const Builtin kMethods[] = {
      {"append", {"", "object"}, 1, changing_method},
      {"capitalize", {""}, 1, case_method<LetterCase::kCapitalized>},
      {"clear", {""}, 1, changing_method},
      {"count", {"", ""}, 2, count_method},
      {"cycle", {"", "*"}, 1, cycle_method},
      {"endswith", {"", ""}, 2, affix_method<false>},
      {"extend", {"", ""}, 1, changing_method},
      {"find", {"", ""}, 2, find_method<false, false>},
      {"format", {"", "*", "**"}, 1, format_method},
      {"get", {"", "", ""}, 2, get_method},
      {"index", {"", ""}, 2, find_method<false, true>},
      {"insert", {"", "", ""}, 1, changing_method},
      {"isalnum", {""}, 1, kind_method<is_alphanumeric>},
      {"isalpha", {""}, 1, kind_method<is_alphabetic>},
      {"isdecimal", {""}, 1, kind_method<is_decimal>},
      {"isdigit", {""}, 1, kind_method<is_digit>},
      {"isspace", {""}, 1, kind_method<is_blank>},
      {"items", {""}, 1, items_method},
      {"join", {"", ""}, 2, join_method},
      {"keys", {""}, 1, side_method<true>},
      {"lower", {""}, 1, case_method<LetterCase::kLower>},
      {"lstrip", {"", ""}, 1, strip_method<true, false>},
      {"partition", {"", ""}, 2, partition_method<false>},
      {"pop", {"", "", ""}, 1, changing_method},
      {"remove", {"", ""}, 1, changing_method},
      {"removeprefix", {"", ""}, 2, remove_affix_method<true>},
      {"removesuffix", {"", ""}, 2, remove_affix_method<false>},
      {"replace", {"", "", "", ""}, 3, replace_method},
      {"rfind", {"", ""}, 2, find_method<true, false>},
      {"rindex", {"", ""}, 2, find_method<true, true>},
      {"rpartition", {"", ""}, 2, partition_method<true>},
      {"rsplit", {"", "sep", "maxsplit"}, 1, split_method<true>},
      {"rstrip", {"", ""}, 1, strip_method<false, true>},
      {"setdefault", {"", "", ""}, 1, changing_method},
      {"split", {"", "sep", "maxsplit"}, 1, split_method<false>},
      {"splitlines", {"", "keepends"}, 1, splitlines_method},
      {"startswith", {"", ""}, 2, affix_method<true>},
      {"strip", {"", ""}, 1, strip_method<true, true>},
      {"title", {""}, 1, case_method<LetterCase::kTitle>},
      {"update", {"", ""}, 1, changing_method},
      {"upper", {""}, 1, case_method<LetterCase::kUpper>},
      {"values", {""}, 1, side_method<false>},
  };
  return kMethods;
}

bool has_attribute(const Value& object, std::string_view name) {
  static constexpr std::string_view kOfDicts[] = {"clear", "copy",    "fromkeys",   "get",    "items", "keys",
                                                  "pop",   "popitem", "setdefault", "update", "values"};
  static constexpr std::string_view kOfLists[] = {"append", "clear", "copy",   "count",   "extend", "index",
                                                  "insert", "pop",   "remove", "reverse", "sort"};
  static constexpr std::string_view kOfNumbers[] = {
      "as_integer_ratio", "bit_count", "bit_length", "conjugate", "denominator", "from_bytes", "fromhex", "hex", "imag",
      "is_integer",       "numerator", "real",       "to_bytes"};
  static constexpr std::string_view kOfStrings[] = {
      "capitalize", "casefold",     "center",       "count",   "encode",     "endswith",    "expandtabs",
      "find",       "format",       "format_map",   "index",   "isalnum",    "isalpha",     "isascii",
      "isdecimal",  "isdigit",      "isidentifier", "islower", "isnumeric",  "isprintable", "isspace",
      "istitle",    "isupper",      "join",         "ljust",   "lower",      "lstrip",      "maketrans",
      "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",      "rjust",
      "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith",  "strip",
      "swapcase",   "title",        "translate",    "upper",   "zfill"};
  const auto among = [&](const auto& names) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  if (name.starts_with("__")) return true;
  if (object.dict() != nullptr) return among(kOfDicts);
  if (object.list() != nullptr) return among(kOfLists);
  if (object.text() != nullptr) return among(kOfStrings);
  return number_of(object) && among(kOfNumbers);
}

}  // namespace headwater::text::jinja
