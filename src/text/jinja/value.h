// The values of the template language. Strings, lists and dicts are immutable and shared; only a namespace changes. A
// namespace cannot be put into a list, a dict or a namespace, so there are no cycles, and how deep lists and dicts nest
// is bounded: neither comparing nor freeing a value can exhaust the stack.
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

struct Undefined {};
struct None {};

class Value {
 public:
  using Held = std::variant<Undefined, None, bool, int64_t, double, std::shared_ptr<const Text>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>>;

  Value() = default;  // undefined
  Value(Held held) : held_(std::move(held)) {}
  static Value none() { return Value(Held(None{})); }
  static Value of_bool(bool value) { return Value(Held(value)); }
  static Value of_int(int64_t value) { return Value(Held(value)); }
  static Value of_float(double value) { return Value(Held(value)); }
  static Value of_text(Text text) { return Value(Held(std::make_shared<const Text>(std::move(text)))); }

  bool is_undefined() const { return std::holds_alternative<Undefined>(held_); }
  bool is_none() const { return std::holds_alternative<None>(held_); }
  // Null where the value is of another type.
  const bool* boolean() const { return std::get_if<bool>(&held_); }
  const int64_t* integer() const { return std::get_if<int64_t>(&held_); }
  const double* floating() const { return std::get_if<double>(&held_); }
  const Text* text() const { return pointee<std::shared_ptr<const Text>>(); }
  const List* list() const { return pointee<std::shared_ptr<const List>>(); }
  const Dict* dict() const { return pointee<std::shared_ptr<const Dict>>(); }
  Namespace* space() const { return pointee<std::shared_ptr<Namespace>>(); }

  bool truth() const;             // Python's bool()
  const char* type_name() const;  // for messages: "a string"

 private:
  template <typename T>
  typename T::element_type* pointee() const {
    const T* pointer = std::get_if<T>(&held_);
    return pointer == nullptr ? nullptr : pointer->get();
  }

  Held held_;
};

struct List {
  std::vector<Value> items;
  uint32_t nesting = 1;  // 1 more than the deepest item
};

struct Dict {
  std::vector<std::pair<Text, Value>> entries;  // in order of insertion; keys are strings
  uint32_t nesting = 1;

  const Value* find(std::string_view key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;

  void set(std::string_view name, Value value);
  const Value* find(std::string_view name) const;
};

// A number as int or float, where bool counts as int; nothing for other types.
struct Number {
  bool is_float;
  int64_t integer;
  double floating;  // also where it is an int
};
std::optional<Number> number_of(const Value& value);

// These take from the budget what the new value needs; the position is for the message.
Result<Value> make_text(Position where, Budget& budget, Text text);
Result<Value> make_list(Position where, Budget& budget, std::vector<Value> items);
Result<Value> make_dict(Position where, Budget& budget, std::vector<std::pair<Text, Value>> entries);
// kUnsupported where the value is a namespace.
Status check_storable(Position where, const Value& value);

// Python's ==. Comparing costs steps.
Result<bool> equal(Position where, Budget& budget, const Value& left, const Value& right);
// Python's <: numbers with numbers, strings with strings; kInvalidArgument otherwise.
Result<bool> less(Position where, Budget& budget, const Value& left, const Value& right);
// What {{ value }} writes, Python's str(). kUnsupported for lists, dicts and namespaces.
Result<Text> to_text(Position where, const Value& value);

}  // namespace headwater::text::jinja
