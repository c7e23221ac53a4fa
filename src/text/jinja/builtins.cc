#include "text/jinja/builtins.h"

#include <algorithm>

#include "text/jinja/filters.h"
#include "text/jinja/methods.h"
#include "text/jinja/sequence_filters.h"
#include "text/jinja/write.h"

namespace headwater::text::jinja {
namespace {

Result<Value> range_function(const Call& call, Arguments arguments) {
  constexpr size_t kItemsMax = 100'000;  // as jinja2's sandbox
  int64_t bounds[3] = {0, 0, 1};
  const auto given = static_cast<size_t>(
      std::count_if(arguments.begin(), arguments.end(), [](const Value& value) { return !value.is_missing(); }));
  for (size_t i = 0; i < given; ++i) {
    const auto bound = integer_of(arguments[i]);
    if (!bound) return call.wrong("range() takes integers, not {}", arguments[i].type_name());
    bounds[given == 1 ? 1 : i] = *bound;
  }
  const auto [begin, end, step] = bounds;
  if (step == 0) return call.wrong("the step of range() is 0");
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    HEADWATER_RETURN_IF_ERROR(call.step());
    if (items.size() == kItemsMax)
      return call.wrong("range() of more than {} numbers, the most that jinja2 allows too", kItemsMax);
    items.push_back(Value::of_int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return make_list(call, std::move(items), ListKind::kRange);
}

Result<Value> raise_function(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Text message, to_text(call, arguments[0]));
  return Status(ErrorCode::kInvalidArgument, message.bytes());
}

Result<Value> strftime_function(const Call& call, Arguments arguments) {
  constexpr size_t kFormatBytesMax = 256;
  const Text* format = arguments[0].text();
  if (format == nullptr || format->size() > kFormatBytesMax) {
    return call.wrong("strftime_now() takes a format of at most {} bytes", kFormatBytesMax);
  }
  char out[kFormatBytesMax * 32];
  const size_t bytes = std::strftime(out, sizeof(out), format->bytes().c_str(), &call.now);
  const bool is_owned = std::all_of(format->runs().begin(), format->runs().end(), [](auto& run) { return run.owned; });
  std::string text;
  append_valid_utf8({out, bytes}, text);  // a format may cut a character
  return make_text(call, Text(text, is_owned));
}

// Of a mapping or of pairs, and of names.
Result<Value> dict_function(const Call& call, Arguments arguments) {
  Entries entries;
  if (arguments[0].dict() != nullptr) {
    HEADWATER_RETURN_IF_ERROR(call.step(arguments[0].dict()->scan_bytes()));
    entries = arguments[0].dict()->entries;
  } else if (!arguments[0].is_missing()) {
    HEADWATER_ASSIGN_OR_RETURN(const std::vector<Value> pairs, items_of(call, arguments[0]));
    for (const Value& pair : pairs) {
      HEADWATER_ASSIGN_OR_RETURN(std::vector<Value> sides, items_of(call, pair));
      if (sides.size() != 2) return call.wrong("dict() takes a mapping or pairs; one has {} items", sides.size());
      entries.emplace_back(std::move(sides[0]), std::move(sides[1]));
    }
  }
  if (const Dict* named = arguments[1].dict()) {
    entries.insert(entries.end(), named->entries.begin(), named->entries.end());
  }
  return make_dict(call, std::move(entries));
}

Result<Value> namespace_function(const Call& call, Arguments arguments) {
  HEADWATER_ASSIGN_OR_RETURN(const Value values, dict_function(call, arguments));
  const Entries& entries = values.dict()->entries;
  HEADWATER_RETURN_IF_ERROR(call.build(sizeof(Namespace) + entries.size() * sizeof(Namespace)));
  const auto space = std::make_shared<Namespace>();
  for (const auto& [name, value] : entries) {
    if (name.text() == nullptr) return call.unsupported("a namespace with an attribute that is {}", name.type_name());
    space->attributes.emplace_back(name.text()->bytes(), value);
  }
  return Value(Value::Held(space));
}

}  // namespace

Arguments rest_of(const Value& tuple) {
  return tuple.list() == nullptr ? Arguments() : Arguments(tuple.list()->items);
}

const Builtin* find(std::span<const Builtin> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(), [&](const Builtin& known) { return known.name == name; });
  return found == table.end() ? nullptr : &*found;
}

const Builtin* find_filter(std::string_view name) {
  const Builtin* filter = find(filters(), name);
  return filter != nullptr ? filter : find(sequence_filters(), name);
}

const Builtin* find_method(std::string_view name) {
  return find(methods(), name);
}

const Builtin* find_function(std::string_view name) {
  static const Builtin kFunctions[] = {
      {"dict", {"", "**"}, 0, dict_function},
      {"namespace", {"", "**"}, 0, namespace_function},
      {"raise_exception", {"message"}, 1, raise_function},
      {"range", {"start", "stop", "step"}, 1, range_function},
      {"strftime_now", {"format"}, 1, strftime_function},
  };
  return find(kFunctions, name);
}

}  // namespace headwater::text::jinja
