#include "text/jinja/access.h"

#include <algorithm>

#include "text/jinja/strings.h"

namespace headwater::text::jinja {
namespace {

Status undefined_object(const Call& call, std::string_view name) {
  return error_at(call.where, ErrorCode::kInvalidArgument, "\"{}\" of an undefined value", name);
}

// Python's objects have attributes of their own that jinja2 would find; we have none of them.
Result<Value> absent(const Call& call, const Value& object, std::string_view name) {
  if (!is_python_attribute(name)) return Value();
  return error_at(call.where, ErrorCode::kUnsupported, "\"{}\" of {} is not known here", name, object.type_name());
}

Result<const Value*> find_key(const Call& call, const Dict& dict, std::string_view key) {
  HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, dict.entries.size() * sizeof(Text)));
  return dict.find(key);
}

struct Progression {
  int64_t begin;
  int64_t step;
  int64_t count;
};

bool is_integer(const Value& value) {
  return number_of(value) && !number_of(value)->is_float;
}

std::optional<int64_t> bound(const Value& value) {
  return is_integer(value) ? std::optional<int64_t>(number_of(value)->integer) : std::nullopt;
}

// As Python's slice.indices(length).
Result<Progression> progression(const Call& call, const Value& begin, const Value& end, const Value& step,
                                int64_t length) {
  const std::optional<int64_t> begin_given = bound(begin);
  const std::optional<int64_t> end_given = bound(end);
  const std::optional<int64_t> step_given = bound(step);
  // A longer stride than the length takes the same items.
  const int64_t stride = std::clamp(step_given.value_or(1), -length - 1, length + 1);
  if (stride == 0) return error_at(call.where, ErrorCode::kInvalidArgument, "the step of a slice is 0");
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
  for (int64_t i = 0; i < taken.count; ++i) {
    const auto at = static_cast<size_t>(taken.begin + i * taken.step);
    result.append(text, offsets[at], offsets[at + 1]);
  }
  return make_text(call.where, call.budget, std::move(result));
}

}  // namespace

Result<Value> attribute(const Call& call, const Value& object, std::string_view name) {
  if (object.is_undefined()) return undefined_object(call, name);
  if (const Namespace* space = object.space()) {
    const Value* found = space->find(name);
    return found == nullptr ? Value() : *found;
  }
  if (object.dict() != nullptr && !is_python_attribute(name)) {
    HEADWATER_ASSIGN_OR_RETURN(const Value* found, find_key(call, *object.dict(), name));
    return found == nullptr ? Value() : *found;
  }
  return absent(call, object, name);
}

Result<Value> subscript(const Call& call, const Value& object, const Value& key) {
  if (const Text* name = key.text()) {
    if (object.is_undefined()) return undefined_object(call, name->bytes());
    if (object.space() != nullptr) return attribute(call, object, name->bytes());
    if (object.dict() != nullptr) {
      HEADWATER_ASSIGN_OR_RETURN(const Value* found, find_key(call, *object.dict(), name->bytes()));
      if (found != nullptr) return *found;
    }
    return absent(call, object, name->bytes());
  }
  if (object.is_undefined()) return undefined_object(call, "[]");
  if (!is_integer(key)) return Value();
  int64_t index = number_of(key)->integer;
  if (const List* list = object.list()) {
    const auto length = static_cast<int64_t>(list->items.size());
    if (index < 0) index += length;
    return index < 0 || index >= length ? Value() : list->items[static_cast<size_t>(index)];
  }
  if (const Text* text = object.text()) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, text->size() * sizeof(size_t)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    const auto length = static_cast<int64_t>(offsets.size()) - 1;
    if (index < 0) index += length;
    if (index < 0 || index >= length) return Value();
    const auto at = static_cast<size_t>(index);
    return make_text(call.where, call.budget, text->slice(offsets[at], offsets[at + 1]));
  }
  return Value();
}

Result<Value> slice(const Call& call, const Value& object, const Value& begin, const Value& end, const Value& step) {
  if (object.is_undefined()) return undefined_object(call, "[:]");
  for (const Value* given : {&begin, &end, &step}) {
    if (!given->is_none() && !is_integer(*given)) return Value();
  }
  if (const Text* text = object.text()) {
    HEADWATER_RETURN_IF_ERROR(call.budget.step(call.where, text->size() * sizeof(size_t)));
    const std::vector<size_t> offsets = character_offsets(text->bytes());
    const auto length = static_cast<int64_t>(offsets.size()) - 1;
    HEADWATER_ASSIGN_OR_RETURN(const Progression taken, progression(call, begin, end, step, length));
    return slice_of_text(call, *text, taken, offsets);
  }
  const List* list = object.list();
  if (list == nullptr) return Value();
  const auto length = static_cast<int64_t>(list->items.size());
  HEADWATER_ASSIGN_OR_RETURN(const Progression taken, progression(call, begin, end, step, length));
  std::vector<Value> items;
  for (int64_t i = 0; i < taken.count; ++i) {
    items.push_back(list->items[static_cast<size_t>(taken.begin + i * taken.step)]);
  }
  return make_list(call.where, call.budget, std::move(items));
}

}  // namespace headwater::text::jinja
