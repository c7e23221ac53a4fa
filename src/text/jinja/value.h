// The values of the template language. Strings, lists and dicts are immutable and shared; only a namespace changes, and
// a loop's place. Neither can be put into a list, a dict or a namespace, so there are no cycles, and how deep lists and
// dicts nest is bounded: neither comparing nor freeing a value can exhaust the stack.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/budget.h"
#include "text/jinja/text.h"

namespace headwater::text::jinja {

class Value;
struct List;
struct Dict;
struct Namespace;
struct Loop;
struct Macro;    // text/jinja/scopes.h
struct Builtin;  // text/jinja/builtins.h

struct Undefined {
  bool is_missing = false;  // an argument that a call does not give
};
struct None {};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Loop>, std::shared_ptr<const Macro>, const Builtin*>;

  Value() = default;  // undefined
  Value(Held held) : held_(std::move(held)) {}
  static Value missing() { return Value(Held(Undefined{.is_missing = true})); }
  static Value none() { return Value(Held(None{})); }
  static Value of_bool(bool value) { return Value(Held(value)); }
  static Value of_int(int64_t value) { return Value(Held(value)); }
  static Value of_size(size_t value) { return of_int(static_cast<int64_t>(value)); }
  static Value of_float(double value) { return Value(Held(value)); }
  static Value of_text(Text text) { return Value(Held(std::make_shared<const Text>(std::move(text)))); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_missing() const { return is_undefined() && std::get<Undefined>(held_).is_missing; }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  // Null where the value is of another type.
  const bool* boolean() const { return std::get_if<bool>(&held_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&held_); }
  const double* floating() const { return std::get_if<double>(&held_); }
  const Text* text() const { return pointee<std::shared_ptr<const Text>>(); }
  const List* list() const { return pointee<std::shared_ptr<const List>>(); }
  const Dict* dict() const { return pointee<std::shared_ptr<const Dict>>(); }
  Namespace* space() const { return pointee<std::shared_ptr<Namespace>>(); }
  const Loop* loop() const { return pointee<std::shared_ptr<const Loop>>(); }
  const Macro* macro() const { return pointee<std::shared_ptr<const Macro>>(); }
  bool is_callable() const { return macro() != nullptr || std::holds_alternative<const Builtin*>(held_); }

  bool is_same_object(const Value& other) const;  // true only where both share what they point to
  bool truth() const;                             // Python's bool()
  const char* type_name() const;                  // for messages: "a string"

 private:
  template <typename T>
  typename T::element_type* pointee() const {
    const T* pointer = std::get_if<T>(&held_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Held held_;
};

enum class ListKind : uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // of a dict's keys, values or items: has a length, but no places
  kGenerator,  // what map, select and the like give: can be read once
};

struct List {
  std::vector<Value> items;
  uint32_t nesting = 1;  // 1 more than the deepest item
  ListKind kind = ListKind::kList;
  mutable bool is_read = false;  // of a generator

  bool has_places() const { return kind != ListKind::kView && kind != ListKind::kGenerator; }
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in order of insertion; keys are strings, numbers or none
  uint32_t nesting = 1;

  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;
  uint64_t scan_bytes() const { return entries.size() * sizeof(Value) * 2; }  // what a search costs, at most
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};

struct Loop {
  std::vector<Value> items;
  size_t index = 0;  // of the item that the body sees
};

// A number as int or float, where bool counts as int; nothing for other types.
struct Number {
  bool is_float;
  int64_t integer;
  double floating;  // also where it is an int
};
std::optional<Number> number_of(const Value& value);
std::optional<int64_t> integer_of(const Value& value);  // of an int or bool

using Entries = std::vector<std::pair<Value, Value>>;

// These take from the budget what the new value needs.
Result<Value> make_text(const Call& call, Text text);
Result<Value> make_list(const Call& call, std::vector<Value> items, ListKind kind = ListKind::kList);
// The last of equal keys counts, in the place of the first.
Result<Value> make_dict(const Call& call, Entries entries);
Result<Value> make_dict_of_different_keys(const Call& call, Entries entries);
// kUnsupported where the value is a namespace or a loop.
Status check_storable(const Call& call, const Value& value);

// Python's ==. Comparing costs steps.
Result<bool> equal(const Call& call, const Value& left, const Value& right);
// Python's <: numbers with numbers, strings with strings, lists with lists; kInvalidArgument otherwise.
Result<bool> less(const Call& call, const Value& left, const Value& right);

}  // namespace headwater::text::jinja
