#include "text/jinja/value.h"

#include <algorithm>

namespace headwater::text::jinja {
namespace {

constexpr uint32_t kNestingMax = 64;

// How deep a value nests; 0 for scalars.
uint32_t nesting_of(const Value& value) {
  if (value.list() != nullptr) return value.list()->nesting;
  if (value.dict() != nullptr) return value.dict()->nesting;
  return 0;
}

Status check_nesting(const Call& call, uint32_t nesting) {
  if (nesting <= kNestingMax) return {};
  return error_at(call.where, ErrorCode::kExhausted, "lists and dicts nest more than {} deep; send flatter messages",
                  kNestingMax);
}

bool is_key(const Value& value) {
  return value.text() != nullptr || value.is_none() || number_of(value);
}

bool same_numbers(const Number& a, const Number& b) {
  return a.is_float || b.is_float ? a.floating == b.floating : a.integer == b.integer;
}

bool same_keys(const Value& a, const Value& b) {
  if (a.text() != nullptr || b.text() != nullptr) {
    return a.text() != nullptr && b.text() != nullptr && a.text()->bytes() == b.text()->bytes();
  }
  const auto left = number_of(a);
  const auto right = number_of(b);
  return left && right ? same_numbers(*left, *right) : a.is_none() && b.is_none();
}

Result<bool> equal_lists(const Call& call, const List& left, const List& right) {
  if (&left == &right) return true;
  if (left.kind == ListKind::kView && right.kind == ListKind::kView) {
    return call.unsupported("the keys, values or items of two mappings are compared; use the filter \"list\"");
  }
  if (left.kind != right.kind || !left.has_places() || left.items.size() != right.items.size()) return false;
  for (size_t i = 0; i < left.items.size(); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, left.items[i], right.items[i]));
    if (!same) return false;
  }
  return true;
}

Result<bool> equal_dicts(const Call& call, const Dict& left, const Dict& right) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    HEADWATER_RETURN_IF_ERROR(call.step(right.scan_bytes()));
    const Value* other = right.find(key);
    if (other == nullptr) return false;
    HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, value, *other));
    if (!same) return false;
  }
  return true;
}

// The first items that differ decide, otherwise the lengths.
Result<bool> less_lists(const Call& call, const List& left, const List& right) {
  for (size_t i = 0; i < std::min(left.items.size(), right.items.size()); ++i) {
    HEADWATER_ASSIGN_OR_RETURN(const bool same, equal(call, left.items[i], right.items[i]));
    if (!same) return less(call, left.items[i], right.items[i]);
  }
  return left.items.size() < right.items.size();
}

bool have_order(const List* left, const List* right) {
  return left != nullptr && right != nullptr && left->kind == right->kind &&
         (left->kind == ListKind::kList || left->kind == ListKind::kTuple);
}

}  // namespace

bool Value::is_same_object(const Value& other) const {
  return std::visit(
      [](const auto& left, const auto& right) {
        if constexpr (!std::is_same_v<decltype(left), decltype(right)>) {
          return false;
        } else if constexpr (requires { *left; }) {
          return left == right;
        } else {
          return false;
        }
      },
      held_, other.held_);
}

bool Value::truth() const {
  if (const bool* value = boolean()) return *value;
  if (const int64_t* value = integer()) return *value != 0;
  if (const double* value = floating()) return *value != 0;
  if (text() != nullptr) return !text()->empty();
  if (list() != nullptr) return list()->kind == ListKind::kGenerator || !list()->items.empty();
  if (dict() != nullptr) return !dict()->entries.empty();
  return !is_undefined() && !is_none();
}

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {
      "an undefined value", "none",   "a boolean", "an integer",          "a float", "a string", "a list", "a mapping",
      "a namespace",        "a loop", "a macro",   "a function or method"};
  static_assert(std::size(kNames) == std::variant_size_v<Held>);
  return kNames[held_.index()];
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.text() != nullptr && name.text()->bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  const auto found =
      std::find_if(entries.begin(), entries.end(), [&](const auto& entry) { return same_keys(entry.first, key); });
  return found == entries.end() ? nullptr : &found->second;
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

std::optional<int64_t> integer_of(const Value& value) {
  const auto number = number_of(value);
  return number && !number->is_float ? std::optional(number->integer) : std::nullopt;
}

Result<Value> make_text(const Call& call, Text text) {
  HEADWATER_RETURN_IF_ERROR(call.build(text.footprint()));
  return Value::of_text(std::move(text));
}

Status check_storable(const Call& call, const Value& value) {
  if (value.space() == nullptr && value.loop() == nullptr) return {};
  return call.unsupported("{} cannot be held by another value here", value.type_name());
}

Result<Value> make_list(const Call& call, std::vector<Value> items, ListKind kind) {
  List list;
  for (const Value& item : items) {
    HEADWATER_RETURN_IF_ERROR(check_storable(call, item));
    list.nesting = std::max(list.nesting, nesting_of(item) + 1);
  }
  HEADWATER_RETURN_IF_ERROR(check_nesting(call, list.nesting));
  HEADWATER_RETURN_IF_ERROR(call.build(sizeof(List) + items.size() * sizeof(Value)));
  list.items = std::move(items);
  list.kind = kind;
  return Value(Value::Held(std::make_shared<const List>(std::move(list))));
}

Result<Value> make_dict(const Call& call, Entries entries) {
  Dict different;
  for (auto& entry : entries) {
    HEADWATER_RETURN_IF_ERROR(call.step(different.scan_bytes()));
    const auto known = std::find_if(different.entries.begin(), different.entries.end(),
                                    [&](const auto& other) { return same_keys(other.first, entry.first); });
    if (known != different.entries.end()) {
      known->second = std::move(entry.second);
    } else {
      different.entries.push_back(std::move(entry));
    }
  }
  return make_dict_of_different_keys(call, std::move(different.entries));
}

Result<Value> make_dict_of_different_keys(const Call& call, Entries entries) {
  Dict dict;
  for (const auto& [key, value] : entries) {
    if (!is_key(key)) return call.unsupported("{} as a key; strings, numbers and none are known here", key.type_name());
    HEADWATER_RETURN_IF_ERROR(check_storable(call, value));
    dict.nesting = std::max(dict.nesting, nesting_of(value) + 1);
  }
  HEADWATER_RETURN_IF_ERROR(check_nesting(call, dict.nesting));
  HEADWATER_RETURN_IF_ERROR(call.build(sizeof(Dict) + entries.size() * sizeof(entries[0])));
  dict.entries = std::move(entries);
  return Value(Value::Held(std::make_shared<const Dict>(std::move(dict))));
}

Result<bool> equal(const Call& call, const Value& left, const Value& right) {
  HEADWATER_RETURN_IF_ERROR(call.step());
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return same_numbers(*a, *b);
  if (left.text() != nullptr && right.text() != nullptr) {
    if (left.text()->size() != right.text()->size()) return false;
    HEADWATER_RETURN_IF_ERROR(call.step(left.text()->size()));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.list() != nullptr && right.list() != nullptr) return equal_lists(call, *left.list(), *right.list());
  if (left.dict() != nullptr && right.dict() != nullptr) return equal_dicts(call, *left.dict(), *right.dict());
  if (left.space() != nullptr) return left.space() == right.space();
  if (left.loop() != nullptr) return left.loop() == right.loop();
  if (left.macro() != nullptr) return left.macro() == right.macro();
  return (left.is_none() && right.is_none()) || (left.is_undefined() && right.is_undefined());
}

Result<bool> less(const Call& call, const Value& left, const Value& right) {
  const auto a = number_of(left);
  const auto b = number_of(right);
  if (a && b) return a->is_float || b->is_float ? a->floating < b->floating : a->integer < b->integer;
  if (have_order(left.list(), right.list())) return less_lists(call, *left.list(), *right.list());
  if (left.text() == nullptr || right.text() == nullptr) {
    return call.wrong("{} and {} have no order", left.type_name(), right.type_name());
  }
  HEADWATER_RETURN_IF_ERROR(call.step(std::min(left.text()->size(), right.text()->size())));
  return left.text()->bytes() < right.text()->bytes();  // byte order of UTF-8 is code point order
}

}  // namespace headwater::text::jinja
