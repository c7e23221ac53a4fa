#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

namespace headwater::text::jinja {
namespace {

constexpr uint32_t kNestingMax = 64;

// How deep a value nests; 0 for scalars.
uint32_t nesting_of(const Value& value) {
  if (value.list() != nullptr) return value.list()->nesting;
  if (value.dict() != nullptr) return value.dict()->nesting;
  return 0;
}

Status check_nesting(Position where, uint32_t nesting) {
  if (nesting <= kNestingMax) return {};
  return error_at(where, ErrorCode::kExhausted, "lists and dicts nest more than {} deep", kNestingMax);
}

// As Python's repr(float): the shortest digits that give the number back, always recognisable as a float.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

Result<bool> equal_lists(Position where, Budget& budget, const List& left, const List& right) {
  if (left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(where, budget, left.items[i], right.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(Position where, Budget& budget, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    HEADWATER_RETURN_IF_ERROR(budget.step(where, right.entries.size() * sizeof(Text)));
    const Value* other = right.find(key.bytes());
    if (other == nullptr) return false;
    HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(where, budget, value, *other));
    if (!same) return false;
  }
  return true;
}

}  // namespace

bool Value::truth() const {
  if (const bool* value = boolean()) return *value;
  if (const int64_t* value = integer()) return *value != 0;
  if (const double* value = floating()) return *value != 0;
  if (text() != nullptr) return !text()->empty();
  if (list() != nullptr) return !list()->items.empty();
  if (dict() != nullptr) return !dict()->entries.empty();
  return space() != nullptr;
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"an undefined value", "none",   "a boolean", "an integer", "a float",
                                           "a string",           "a list", "a mapping", "a namespace"};
  static_assert(std::size(kNames) == std::variant_size_v<Held>);
  return kNames[held_.index()];
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.bytes() == key) return &value;
  }
  return nullptr;
}

void Namespace::set(std::string_view name, Value value) {
  for (auto& [known, held] : attributes) {
    if (known == name) {
      held = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

const Value* Namespace::find(std::string_view name) const {
  for (const auto& [known, held] : attributes) {
    if (known == name) return &held;
  }
  return nullptr;
}

std::optional<Number> number_of(const Value& value) {
  if (const bool* held = value.boolean()) return Number{false, *held ? 1 : 0, *held ? 1.0 : 0.0};
  if (const int64_t* held = value.integer()) return Number{false, *held, static_cast<double>(*held)};
  if (const double* held = value.floating()) return Number{true, 0, *held};
  return std::nullopt;
}

Result<Value> make_text(Position where, Budget& budget, Text text) {
  HEADWATER_RETURN_IF_ERROR(budget.build(where, text.footprint()));
  return Value::of_text(std::move(text));
}

Status check_storable(Position where, const Value& value) {
  if (value.space() == nullptr) return {};
  return error_at(where, ErrorCode::kUnsupported, "a namespace cannot be held by another value here");
}

Result<Value> make_list(Position where, Budget& budget, std::vector<Value> items) {
  List list;
  for (const Value& item : items) {
    HEADWATER_RETURN_IF_ERROR(check_storable(where, item));
    list.nesting = std::max(list.nesting, nesting_of(item) + 1);
  }
  HEADWATER_RETURN_IF_ERROR(check_nesting(where, list.nesting));
  HEADWATER_RETURN_IF_ERROR(budget.build(where, sizeof(List) + items.size() * sizeof(Value)));
  list.items = std::move(items);
  return Value(Value::Held(std::make_shared<const List>(std::move(list))));
}

Result<Value> make_dict(Position where, Budget& budget, std::vector<std::pair<Text, Value>> entries) {
  Dict dict;
  for (auto& entry : entries) {
    auto& key = entry.first;
    auto& value = entry.second;
    HEADWATER_RETURN_IF_ERROR(check_storable(where, value));
    HEADWATER_RETURN_IF_ERROR(budget.build(where, key.footprint() + sizeof(Value)));
    HEADWATER_RETURN_IF_ERROR(budget.step(where, dict.entries.size() * sizeof(Text)));
    dict.nesting = std::max(dict.nesting, nesting_of(value) + 1);
    const auto known = std::find_if(dict.entries.begin(), dict.entries.end(),
                                    [&](const auto& other) { return other.first.bytes() == key.bytes(); });
    if (known != dict.entries.end()) {
      known->second = std::move(value);
    } else {
      dict.entries.emplace_back(std::move(key), std::move(value));
    }
  }
  HEADWATER_RETURN_IF_ERROR(check_nesting(where, dict.nesting));
  return Value(Value::Held(std::make_shared<const Dict>(std::move(dict))));
}

Result<bool> equal(Position where, Budget& budget, const Value& left, const Value& right) {
  HEADWATER_RETURN_IF_ERROR(budget.step(where));
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return a->is_float || b->is_float ? a->floating == b->floating : a->integer == b->integer;
  if (left.text() != nullptr && right.text() != nullptr) {
    if (left.text()->size() != right.text()->size()) return false;
    HEADWATER_RETURN_IF_ERROR(budget.step(where, left.text()->size()));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.list() != nullptr && right.list() != nullptr) return equal_lists(where, budget, *left.list(), *right.list());
  if (left.dict() != nullptr && right.dict() != nullptr) return equal_dicts(where, budget, *left.dict(), *right.dict());
  if (left.space() != nullptr) return left.space() == right.space();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

Result<bool> less(Position where, Budget& budget, const Value& left, const Value& right) {
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return a->is_float || b->is_float ? a->floating < b->floating : a->integer < b->integer;
  if (left.text() == nullptr || right.text() == nullptr) {
    return error_at(where, ErrorCode::kInvalidArgument, "{} and {} have no order", left.type_name(), right.type_name());
  }
  HEADWATER_RETURN_IF_ERROR(budget.step(where, std::min(left.text()->size(), right.text()->size())));
  return left.text()->bytes() < right.text()->bytes();  // byte order of UTF-8 is code point order
}

Result<Text> to_text(Position where, const Value& value) {
  if (value.text() != nullptr) return *value.text();
  if (value.is_undefined()) return Text();
  if (value.is_none()) return Text("None", true);
  if (const bool* held = value.boolean()) return Text(*held ? "True" : "False", true);
  if (const int64_t* held = value.integer()) return Text(fmt::format("{}", *held), true);
  if (const double* held = value.floating()) return Text(float_text(*held), true);
  return error_at(where, ErrorCode::kUnsupported, "{} cannot be written as text here", value.type_name());
}

}  // namespace headwater::text::jinja
