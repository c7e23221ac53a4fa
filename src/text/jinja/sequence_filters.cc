#include "text/jinja/sequence_filters.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/access.h"
#include "text/jinja/letter_case.h"
#include "text/jinja/operators.h"
#include "text/jinja/strings.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

using Items = std::vector<Value>;

Result<Value> end_of(const Call& call, const Value& value, bool first) {
  if (const Text* text = value.text(); text != nullptr && !text->empty()) {
    const std::string_view bytes = text->bytes();
    size_t begin = first ? 0 : bytes.size() - 1;
    while ((static_cast<uint8_t>(bytes[begin]) & 0xC0) == 0x80) --begin;
    return make_text(call, text->slice(begin, begin + first_character(bytes.substr(begin)).bytes));
  }
  const List* list = value.list();
  if (list != nullptr && list->kind == ListKind::kGenerator && !first)
    return call.wrong("a generator has no last item");
  if (list != nullptr && !list->is_read && !list->items.empty())
    return first ? list->items.front() : list->items.back();
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, value));
  if (items.empty()) return Value();
  return first ? items.front() : items.back();
}

Result<Value> first_filter(const Call& call, Arguments arguments) {
  return end_of(call, arguments[0], true);
}
Result<Value> last_filter(const Call& call, Arguments arguments) {
  return end_of(call, arguments[0], false);
}

Result<Value> length_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const size_t length, length_of(call, arguments[0]));
  return Value::of_size(length);
}

Result<Value> list_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(Items items, items_of(call, arguments[0]));
  return make_list(call, std::move(items));
}

// x.a.0.b of an item; the item itself where no attribute is given.
Result<Value> part_of(const Call& call, const Value& item, const Value& attribute) {
  if (attribute.is_missing() || attribute.is_none()) return item;
  if (attribute.integer() != nullptr) return subscript(call, item, attribute);
  if (attribute.text() == nullptr) return call.wrong("an attribute is a string, not {}", attribute.type_name());
  std::string_view path = attribute.text()->bytes();
  Value value = item;
  for (bool is_last = false; !is_last;) {
    const size_t dot = path.find('.');
    is_last = dot == std::string_view::npos;
    const std::string_view name = path.substr(0, dot);
    int64_t index = 0;
    const auto parsed = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool is_index = parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() && index >= 0;
    HEADWATER_ASSIGN_OR_RETURN(
        value, subscript(call, value, is_index ? Value::of_int(index) : Value::of_text(Text(name, true))));
    if (!is_last) path.remove_prefix(dot + 1);
  }
  return value;
}

Result<Value> join_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Text separator, to_text(call, arguments[1]));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const Value part, part_of(call, items[i], arguments[2]));
    HEADWATER_RETURN_IF_ERROR(call.build(separator.footprint()));
    if (i > 0) result.append(separator);
    HEADWATER_RETURN_IF_ERROR(append_text(call, part, result));
  }
  return Value::of_text(std::move(result));
}

Result<Value> items_filter(const Call& call, Arguments arguments) {
  if (arguments[0].is_undefined()) return make_list(call, {}, ListKind::kGenerator);
  const Dict* dict = arguments[0].dict();
  if (dict == nullptr) return call.wrong("{} has no items", arguments[0].type_name());
  HEADWATER_ASSIGN_OR_RETURN(Items pairs, pairs_of(call, *dict));
  return make_list(call, std::move(pairs), ListKind::kGenerator);
}

// What items are compared by: strings in lower case unless their case counts.
Result<Items> keys_of(const Call& call, const Items& items, const Value& attribute, bool by_case) {
  Items keys;
  for (const Value& item : items) {
    HEADWATER_ASSIGN_OR_RETURN(Value key, part_of(call, item, attribute));
    if (key.text() != nullptr && !by_case) {
      HEADWATER_ASSIGN_OR_RETURN(Text lower, with_case(call, *key.text(), LetterCase::kLower));
      key = Value::of_text(std::move(lower));
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

// The order of keys; equal ones stay as they stand, also in reverse. kInvalidArgument where two have no order.
Result<std::vector<size_t>> order_of(const Call& call, const Items& keys, bool reverse) {
  for (const Value& key : keys) {
    if (key.floating() != nullptr && std::isnan(*key.floating())) return call.wrong("nan has no order");
  }
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  Status status;  // of the first comparison that fails; behind it nothing is less
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    if (status) status = call.step();
    const Result<bool> is_less = !status   ? false
                                 : reverse ? less(call, keys[b], keys[a])
                                           : less(call, keys[a], keys[b]);
    if (!is_less) status = is_less.status();
    return is_less && *is_less;
  });
  HEADWATER_RETURN_IF_ERROR(status);
  return order;
}

Result<Items> sorted(const Call& call, const Items& items, const Value& attribute, bool by_case, bool reverse) {
  HEADWATER_ASSIGN_OR_RETURN(const Items keys, keys_of(call, items, attribute, by_case));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<size_t> order, order_of(call, keys, reverse));
  Items result;
  for (const size_t index : order) result.push_back(items[index]);
  return result;
}

Result<Value> sort_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(Items result,
                             sorted(call, items, arguments[3], arguments[2].truth(), arguments[1].truth()));
  return make_list(call, std::move(result));
}

Result<Value> dictsort_filter(const Call& call, Arguments arguments) {
  const Dict* dict = arguments[0].dict();
  if (dict == nullptr) return call.wrong("dictsort takes a mapping, not {}", arguments[0].type_name());
  const std::string by = arguments[2].text() == nullptr ? "key" : arguments[2].text()->bytes();
  if (by != "key" && by != "value") return call.wrong("dictsort sorts by \"key\" or \"value\", not \"{}\"", by);
  HEADWATER_ASSIGN_OR_RETURN(const Items pairs, pairs_of(call, *dict));
  HEADWATER_ASSIGN_OR_RETURN(
      Items result, sorted(call, pairs, Value::of_int(by == "value"), arguments[1].truth(), arguments[3].truth()));
  return make_list(call, std::move(result));
}

template <bool kLargest>
Result<Value> extreme_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Items keys, keys_of(call, items, arguments[2], arguments[1].truth()));
  if (items.empty()) return Value();
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const bool better, less(call, keys[kLargest ? best : i], keys[kLargest ? i : best]));
    if (better) best = i;
  }
  return items[best];
}

Result<Value> unique_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, arguments[0]));
  HEADWATER_ASSIGN_OR_RETURN(const Items keys, keys_of(call, items, arguments[2], arguments[1].truth()));
  Items result;
  Items seen;
  for (size_t i = 0; i < items.size(); ++i) {
    bool is_known = false;
    for (size_t j = 0; j < seen.size() && !is_known; ++j) {
      HEADWATER_ASSIGN_OR_RETURN(is_known, equal(call, seen[j], keys[i]));
    }
    if (is_known) continue;
    seen.push_back(keys[i]);
    result.push_back(items[i]);
  }
  return make_list(call, std::move(result), ListKind::kGenerator);
}

Result<Value> sum_filter(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_of(call, arguments[0]));
  Value sum = arguments[2].is_missing() ? Value::of_int(0) : arguments[2];
  for (const Value& item : items) {
    HEADWATER_ASSIGN_OR_RETURN(const Value part, part_of(call, item, arguments[1]));
    HEADWATER_ASSIGN_OR_RETURN(sum, arithmetic(call, Operator::kAdd, sum, part));
  }
  return sum;
}

Result<Value> reverse_filter(const Call& call, Arguments arguments) {
  if (arguments[0].text() != nullptr) {
    return slice(call, arguments[0], Value::none(), Value::none(), Value::of_int(-1));
  }
  HEADWATER_ASSIGN_OR_RETURN(Items items, items_of(call, arguments[0]));
  std::reverse(items.begin(), items.end());
  const bool is_generator = arguments[0].list() != nullptr && arguments[0].list()->kind == ListKind::kGenerator;
  return make_list(call, std::move(items), is_generator ? ListKind::kList : ListKind::kGenerator);
}

// A filter or test by its name, with the arguments that map, select and the like were given behind the name.
Result<Value> apply_named(const Call& call, const Builtin* builtin, const Value& name, const Value& subject,
                          Arguments by_place, const Dict* by_name) {
  HEADWATER_RETURN_IF_ERROR(call.step());
  if (builtin == nullptr) {
    return call.unsupported("the filter or test {} is not known here",
                            name.text() == nullptr ? name.type_name() : "\"" + name.text()->bytes() + "\"");
  }
  Items values(builtin->parameters.size(), Value::missing());
  values[0] = subject;
  size_t next = 1;
  for (; !by_place.empty() && next < values.size() && !builtin->parameters[next].starts_with('*'); ++next) {
    values[next] = by_place.front();
    by_place = by_place.subspan(1);
  }
  const auto place = [&](std::string_view parameter) {
    const auto& all = builtin->parameters;
    return static_cast<size_t>(std::find(all.begin(), all.end(), parameter) - all.begin());
  };
  if (!by_place.empty()) {
    if (next == values.size() || builtin->parameters[next] != "*") {
      return call.wrong("\"{}\" is given too many arguments", builtin->name);
    }
    HEADWATER_ASSIGN_OR_RETURN(values[next], make_list(call, {by_place.begin(), by_place.end()}, ListKind::kTuple));
  }
  for (const auto& [key, value] : by_name == nullptr ? Entries() : by_name->entries) {
    const size_t slot = place(key.text()->bytes());
    if (slot == values.size() || !values[slot].is_missing()) {
      return call.unsupported("\"{}\" has no parameter for the argument {}", builtin->name, key.text()->bytes());
    }
    values[slot] = value;
  }
  for (size_t i = 0; i < builtin->required; ++i) {
    if (values[i].is_missing()) return call.wrong("\"{}\" is given too few arguments", builtin->name);
  }
  return builtin->apply(call, values);
}

// map and select take what is false, such as none, for nothing.
Result<Items> items_if_true(const Call& call, const Value& value) {
  if (!value.truth()) return Items();
  return items_of(call, value);
}

Result<Value> attributes_of(const Call& call, Items items, const Dict& named) {
  const Value* attribute = named.find("attribute");
  const Value* otherwise = named.find("default");
  const size_t known = (attribute != nullptr) + (otherwise != nullptr);
  if (attribute == nullptr || named.entries.size() > known) return call.wrong("map takes a filter or an attribute");
  for (Value& item : items) {
    HEADWATER_ASSIGN_OR_RETURN(item, part_of(call, item, *attribute));
    if (item.is_undefined() && otherwise != nullptr) item = *otherwise;
  }
  return make_list(call, std::move(items), ListKind::kGenerator);
}

Result<Value> map_filter(const Call& call, Arguments arguments) {
  const Arguments rest = rest_of(arguments[1]);
  const Dict* named = arguments[2].dict();
  HEADWATER_ASSIGN_OR_RETURN(Items items, items_if_true(call, arguments[0]));
  if (rest.empty()) return attributes_of(call, std::move(items), named == nullptr ? Dict() : *named);
  const Builtin* filter = rest[0].text() == nullptr ? nullptr : find_filter(rest[0].text()->bytes());
  for (Value& item : items) {
    HEADWATER_ASSIGN_OR_RETURN(item, apply_named(call, filter, rest[0], item, rest.subspan(1), named));
  }
  return make_list(call, std::move(items), ListKind::kGenerator);
}

// Behind the attribute, where there is one, stand a test's name and its own arguments.
template <bool kKeep, bool kOfAttribute>
Result<Value> select_filter(const Call& call, Arguments arguments) {
  const Arguments rest = rest_of(arguments[kOfAttribute ? 2 : 1]);
  const Value name = rest.empty() ? Value::missing() : rest[0];
  const Builtin* test = name.text() == nullptr ? nullptr : find_test(name.text()->bytes());
  HEADWATER_ASSIGN_OR_RETURN(const Items items, items_if_true(call, arguments[0]));
  Items result;
  for (const Value& item : items) {
    HEADWATER_ASSIGN_OR_RETURN(Value subject, part_of(call, item, kOfAttribute ? arguments[1] : Value::missing()));
    if (!name.is_missing()) {
      HEADWATER_ASSIGN_OR_RETURN(subject, apply_named(call, test, name, subject, rest.subspan(1), nullptr));
    }
    if (subject.truth() == kKeep) result.push_back(item);
  }
  return make_list(call, std::move(result), ListKind::kGenerator);
}

}  // namespace

Result<std::vector<Value>> items_of(const Call& call, const Value& value) {
  Items items;
  if (const List* list = value.list()) {
    if (!list->is_read) items = list->items;
    if (list->kind == ListKind::kGenerator) list->is_read = true;
  } else if (value.dict() != nullptr) {
    for (const auto& entry : value.dict()->entries) items.push_back(entry.first);
  } else if (const Text* text = value.text()) {
    HEADWATER_RETURN_IF_ERROR(call.build(text->size() * sizeof(Text)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    for (size_t i = 0; i + 1 < offsets.size(); ++i) {
      items.push_back(Value::of_text(text->slice(offsets[i], offsets[i + 1])));
    }
  } else if (!value.is_undefined()) {
    return call.wrong("{} has no items", value.type_name());
  }
  HEADWATER_RETURN_IF_ERROR(call.step(items.size() * sizeof(Value)));
  return items;
}

Result<size_t> length_of(const Call& call, const Value& value) {
  if (const Text* text = value.text()) {
    HEADWATER_RETURN_IF_ERROR(call.step(text->size()));
    return count_characters(text->bytes());
  }
  if (value.list() != nullptr && value.list()->kind != ListKind::kGenerator) return value.list()->items.size();
  if (value.dict() != nullptr) return value.dict()->entries.size();
  if (value.is_undefined()) return size_t{0};
  return call.wrong("{} has no length", value.list() != nullptr ? "a generator" : value.type_name());
}

Result<std::vector<Value>> pairs_of(const Call& call, const Dict& dict) {
  Items pairs;
  for (const auto& [key, value] : dict.entries) {
    HEADWATER_ASSIGN_OR_RETURN(Value pair, make_list(call, {key, value}, ListKind::kTuple));
    pairs.push_back(std::move(pair));
  }
  HEADWATER_RETURN_IF_ERROR(call.step(dict.scan_bytes()));
  return pairs;
}

std::span<const Builtin> sequence_filters() {
  static const Builtin kFilters[] = {
      {"count", {"object"}, 1, length_filter},
      {"dictsort", {"value", "case_sensitive", "by", "reverse"}, 1, dictsort_filter},
      {"first", {"seq"}, 1, first_filter},
      {"items", {"value"}, 1, items_filter},
      {"join", {"value", "d", "attribute"}, 1, join_filter},
      {"last", {"seq"}, 1, last_filter},
      {"length", {"object"}, 1, length_filter},
      {"list", {"value"}, 1, list_filter},
      {"map", {"value", "*", "**"}, 1, map_filter},
      {"max", {"value", "case_sensitive", "attribute"}, 1, extreme_filter<true>},
      {"min", {"value", "case_sensitive", "attribute"}, 1, extreme_filter<false>},
      {"reject", {"value", "*"}, 1, select_filter<false, false>},
      {"rejectattr", {"value", "", "*"}, 2, select_filter<false, true>},
      {"reverse", {"value"}, 1, reverse_filter},
      {"select", {"value", "*"}, 1, select_filter<true, false>},
      {"selectattr", {"value", "", "*"}, 2, select_filter<true, true>},
      {"sort", {"value", "reverse", "case_sensitive", "attribute"}, 1, sort_filter},
      {"sum", {"iterable", "attribute", "start"}, 1, sum_filter},
      {"unique", {"value", "case_sensitive", "attribute"}, 1, unique_filter},
  };
  return kFilters;
}

}  // namespace headwater::text::jinja
