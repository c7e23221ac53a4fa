#include "text/jinja/json_value.h"

namespace headwater::text::jinja {
namespace {

constexpr size_t kDepthMax = 64;

Result<Value> convert(const Call& call, const json::Value& json, size_t depth);

Result<Value> text_value(const Call& call, boost::json::string_view text) {
  HEADWATER_RETURN_IF_ERROR(call.build(text.size()));
  HEADWATER_RETURN_IF_ERROR(call.step(text.size()));
  std::string valid;
  append_valid_utf8({text.data(), text.size()}, valid);
  return make_text(call, Text(valid, false));
}

Result<Value> convert_array(const Call& call, const boost::json::array& array, size_t depth) {
  std::vector<Value> items;
  for (const json::Value& item : array) {
    HEADWATER_ASSIGN_OR_RETURN(Value value, convert(call, item, depth + 1));
    items.push_back(std::move(value));
  }
  return make_list(call, std::move(items));
}

Result<Value> convert_object(const Call& call, const boost::json::object& object, size_t depth) {
  Entries entries;
  for (const auto& [name, held] : object) {
    HEADWATER_ASSIGN_OR_RETURN(Value key, text_value(call, name));
    HEADWATER_ASSIGN_OR_RETURN(Value value, convert(call, held, depth + 1));
    entries.emplace_back(std::move(key), std::move(value));
  }
  return make_dict_of_different_keys(call, std::move(entries));
}

Result<Value> convert(const Call& call, const json::Value& json, size_t depth) {
  HEADWATER_RETURN_IF_ERROR(call.step());
  if (depth > kDepthMax)
    return error(ErrorCode::kExhausted, "JSON for the chat template nests more than {} deep; send it flatter",
                 kDepthMax);
  switch (json.kind()) {
    case boost::json::kind::null:
      return Value::none();
    case boost::json::kind::bool_:
      return Value::of_bool(json.get_bool());
    case boost::json::kind::int64:
      return Value::of_int(json.get_int64());
    case boost::json::kind::uint64:
      if (json.get_uint64() <= INT64_MAX) return Value::of_int(static_cast<int64_t>(json.get_uint64()));
      return error(ErrorCode::kUnsupported, "the number {} does not fit 64 bits with a sign", json.get_uint64());
    case boost::json::kind::double_:
      return Value::of_float(json.get_double());
    case boost::json::kind::string:
      return text_value(call, json.get_string());
    case boost::json::kind::array:
      return convert_array(call, json.get_array(), depth);
    case boost::json::kind::object:
      return convert_object(call, json.get_object(), depth);
  }
  return Value::none();
}

}  // namespace

Result<Value> from_json(const Call& call, const json::Value& json) {
  return convert(call, json, 0);
}

}  // namespace headwater::text::jinja
