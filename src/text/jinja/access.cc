#include "text/jinja/access.h"

#include <algorithm>

#include "text/jinja/methods.h"
#include "text/jinja/strings.h"

namespace headwater::text::jinja {
namespace {

Status undefined_object(const Call& call, std::string_view name) {
  return call.wrong("\"{}\" of an undefined value", name);
}

Result<Value> opaque_method(const Call& call, Arguments) {
  return call.unsupported("a method is called where it is not named");
}

// An attribute that Python's objects have of their own: a method, which is true and otherwise of no use here.
Result<Value> own_attribute(const Call& call, const Value& object, std::string_view name) {
  static const Builtin kMethod = {"", {}, 0, opaque_method};
  if (!name.starts_with("__") && !number_of(object)) return Value(Value::Held(&kMethod));
  return call.unsupported("\"{}\" of {} is not known here", name, object.type_name());
}

Result<const Value*> find_key(const Call& call, const Dict& dict, const Value& key) {
  HEADWATER_RETURN_IF_ERROR(call.step(dict.scan_bytes()));
  return dict.find(key);
}

Result<Value> loop_attribute(const Call& call, const Loop& loop, std::string_view name) {
  const size_t length = loop.items.size();
  if (name == "index") return Value::of_size(loop.index + 1);
  if (name == "index0") return Value::of_size(loop.index);
  if (name == "revindex") return Value::of_size(length - loop.index);
  if (name == "revindex0") return Value::of_size(length - loop.index - 1);
  if (name == "first") return Value::of_bool(loop.index == 0);
  if (name == "last") return Value::of_bool(loop.index + 1 == length);
  if (name == "length") return Value::of_size(length);
  if (name == "previtem") return loop.index == 0 ? Value() : loop.items[loop.index - 1];
  if (name == "nextitem") return loop.index + 1 == length ? Value() : loop.items[loop.index + 1];
  return call.unsupported("\"loop.{}\" is not known here", name);
}

struct Progression {
  int64_t begin;
  int64_t step;
  int64_t count;
};

// As Python's slice.indices(length).
Result<Progression> progression(const Call& call, const Value& begin, const Value& end, const Value& step,
                                int64_t length) {
  const std::optional<int64_t> begin_given = integer_of(begin);
  const std::optional<int64_t> end_given = integer_of(end);
  const std::optional<int64_t> step_given = integer_of(step);
  // A longer stride than the length takes the same items.
  const int64_t stride = std::clamp(step_given.value_or(1), -length - 1, length + 1);
  if (stride == 0) return call.wrong("the step of a slice is 0");
  const int64_t index_min = stride < 0 ? -1 : 0;
  const int64_t index_max = stride < 0 ? length - 1 : length;
  const auto index = [&](int64_t given) {
    return given < 0 ? std::max(std::max(given, -length - 1) + length, index_min) : std::min(given, index_max);
  };
  const int64_t first = begin_given ? index(*begin_given) : stride < 0 ? index_max : index_min;
  const int64_t last = end_given ? index(*end_given) : stride < 0 ? index_min : index_max;
  const int64_t span = stride < 0 ? first - last : last - first;
  const int64_t distance = stride < 0 ? -stride : stride;
  return Progression{first, stride, span <= 0 ? 0 : (span - 1) / distance + 1};
}

Result<Value> slice_of_text(const Call& call, const Text& text, const Progression& taken,
                            const std::vector<size_t>& offsets) {
  Text result;
  result.set_safe(text.is_safe());
  for (int64_t i = 0; i < taken.count; ++i) {
    const auto at = static_cast<size_t>(taken.begin + i * taken.step);
    result.append(text, offsets[at], offsets[at + 1]);
  }
  return make_text(call, std::move(result));
}

}  // namespace

Result<Value> attribute(const Call& call, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_object(call, name);
  if (const Namespace* space = object.space()) {
    const Value* found = space->find(name);
    return found == nullptr ? Value() : *found;
  }
  if (object.macro() != nullptr) return call.unsupported("\"{}\" of a macro is not known here", name);
  if (object.loop() != nullptr) return loop_attribute(call, *object.loop(), name);
  if (has_attribute(object, name)) return own_attribute(call, object, name);
  if (object.dict() == nullptr) return Value();
  HEADWATER_RETURN_IF_ERROR(call.step(object.dict()->scan_bytes()));
  const Value* found = object.dict()->find(name);
  return found == nullptr ? Value() : *found;
}

Result<Value> subscript(const Call& call, const Value& object, const Value& key) {
  if (object.dict() != nullptr) {
    HEADWATER_ASSIGN_OR_RETURN(const Value* found, find_key(call, *object.dict(), key));
    if (found != nullptr) return *found;
  }
  if (key.text() != nullptr) return attribute(call, object, key.text()->bytes());
  if (object.is_undefined()) return undefined_object(call, "[]");
  if (!integer_of(key)) return Value();
  int64_t index = *integer_of(key);
  if (const List* list = object.list(); list != nullptr && list->has_places()) {
    const auto length = static_cast<int64_t>(list->items.size());
    if (index < 0) index += length;
    return index < 0 || index >= length ? Value() : list->items[static_cast<size_t>(index)];
  }
  if (const Text* text = object.text()) {
    HEADWATER_RETURN_IF_ERROR(call.step(text->size() * sizeof(size_t)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    const auto length = static_cast<int64_t>(offsets.size()) - 1;
    if (index < 0) index += length;
    if (index < 0 || index >= length) return Value();
    const auto at = static_cast<size_t>(index);
    return make_text(call, text->slice(offsets[at], offsets[at + 1]));
  }
  return Value();
}

Result<Value> slice(const Call& call, const Value& object, const Value& begin, const Value& end, const Value& step) {
  if (object.is_undefined()) return undefined_object(call, "[:]");
  for (const Value* given : {&begin, &end, &step}) {
    if (!given->is_none() && !integer_of(*given)) return Value();
  }
  if (const Text* text = object.text()) {
    HEADWATER_RETURN_IF_ERROR(call.step(text->size() * sizeof(size_t)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    const auto length = static_cast<int64_t>(offsets.size()) - 1;
    HEADWATER_ASSIGN_OR_RETURN(const Progression taken, progression(call, begin, end, step, length));
    return slice_of_text(call, *text, taken, offsets);
  }
  const List* list = object.list();
  if (list == nullptr || !list->has_places()) return Value();
  const auto length = static_cast<int64_t>(list->items.size());
  HEADWATER_ASSIGN_OR_RETURN(const Progression taken, progression(call, begin, end, step, length));
  std::vector<Value> items;
  for (int64_t i = 0; i < taken.count; ++i) {
    items.push_back(list->items[static_cast<size_t>(taken.begin + i * taken.step)]);
  }
  return make_list(call, std::move(items), list->kind);
}

}  // namespace headwater::text::jinja
