#include "server/openai/openapi.h"

#include <boost/json.hpp>
#include <cmath>

#include "server/openai/fields.h"
#include "server/openai/openapi_answers.h"
#include "server/openai/routes.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;

json::object reference(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

json::object typed(std::string_view type) {
  return {{"type", type}};
}

json::object list_of(json::object items, size_t count_min) {
  return {{"type", "array"}, {"items", std::move(items)}, {"minItems", count_min}};
}

json::object token_id(const ServedModel& served) {
  return {{"type", "integer"}, {"minimum", 0}, {"maximum", served.vocabulary - 1}};
}

json::object text_schema(double bytes_min, double bytes_max) {
  json::object schema = typed("string");
  if (!std::isinf(bytes_min)) schema["minLength"] = static_cast<int64_t>(bytes_min);
  if (!std::isinf(bytes_max)) schema["maxLength"] = static_cast<int64_t>(bytes_max);
  return schema;
}

// Numbers of tokens cannot exceed the context.
json::object integer_schema(const Field& field, const ServedModel& served) {
  json::object schema = typed("integer");
  const bool limited = !std::isinf(field.max);
  schema["minimum"] = limited ? static_cast<int64_t>(field.min) : std::numeric_limits<int64_t>::min();
  schema["maximum"] = limited ? static_cast<int64_t>(field.max) : std::numeric_limits<int64_t>::max();
  if (field.name.ends_with("_tokens")) schema["maximum"] = served.context_max;
  return schema;
}

json::object number_schema(const Field& field) {
  return {{"type", "number"}, {field.above_min ? "exclusiveMinimum" : "minimum", field.min}, {"maximum", field.max}};
}

json::object prompt_schema(const ServedModel& served) {
  json::object text = typed("string");
  if (served.tokenizer->encode_prompt("").value().empty()) text["minLength"] = 1;
  json::object texts = list_of(text, 1);
  texts["maxItems"] = kChoicesMax;
  const json::object ids = list_of(token_id(served), 1);
  json::object lists = list_of(ids, 1);
  lists["maxItems"] = kChoicesMax;
  return {{"anyOf", {text, texts, ids, lists}}};
}

json::object variables_schema() {
  json::array names;
  for (const std::string_view name : kTemplateOwnNames) names.push_back(json::string_view(name.data(), name.size()));
  return {{"type", "object"}, {"propertyNames", {{"not", {{"enum", std::move(names)}}}}}};
}

json::object value_schema(const Field& field, const ServedModel& served) {
  if (field.name == "model") return {{"type", "string"}, {"enum", json::value_from(served.names)}};
  switch (field.kind) {
    case FieldKind::kBoolean:
      return typed("boolean");
    case FieldKind::kInteger:
      return integer_schema(field, served);
    case FieldKind::kNumber:
      return number_schema(field);
    case FieldKind::kString:
      return text_schema(field.min, field.max);
    case FieldKind::kText:
      return typed("string");
    case FieldKind::kObject:
      return typed("object");
    case FieldKind::kAny:
      return {};
    case FieldKind::kLogprobs:
      return {{"anyOf", {typed("boolean"), integer_schema(field, served)}}};
    case FieldKind::kStops: {
      json::object texts = list_of(text_schema(1, kStopBytesMax), 0);
      texts["maxItems"] = static_cast<int64_t>(field.max);
      return {{"anyOf", {text_schema(1, kStopBytesMax), texts}}};
    }
    case FieldKind::kTokenIds: {
      json::object ids = list_of(token_id(served), 0);
      if (!std::isinf(field.max)) ids["maxItems"] = static_cast<int64_t>(field.max);
      return ids;
    }
    case FieldKind::kLogitBias:
      return {{"type", "object"},
              {"maxProperties", kJsonKeysMax},
              {"propertyNames", {{"pattern", "^(0|[1-9][0-9]*)$"}}},
              {"additionalProperties", {{"type", "number"}, {"minimum", field.min}, {"maximum", field.max}}}};
    case FieldKind::kPrompt:
      return prompt_schema(served);
    case FieldKind::kMessages:
      return list_of(reference("Message"), 1);
    case FieldKind::kStreamOptions:
      return {{"type", "object"},
              {"properties",
               {{"include_usage", {{"type", {"boolean", "null"}}}},
                {"continuous_usage_stats", {{"type", {"boolean", "null"}}}}}}};
    case FieldKind::kObjects:
      return list_of(field.name == "tools" ? reference("Tool") : typed("object"), 0);
    case FieldKind::kTemplateVariables:
      return variables_schema();
  }
  return {};
}

json::object field_schema(const Field& field, const ServedModel& served) {
  json::object schema;
  if (field.support == Support::kNeutral) {
    json::array values = json::parse(field.neutral).as_array();
    values.push_back(nullptr);
    schema["enum"] = std::move(values);
    schema["description"] = "Accepted only where it asks for nothing. " + std::string(field.sentence);
    return schema;
  }
  schema = value_schema(field, served);
  if (!field.required) schema = {{"anyOf", {std::move(schema), typed("null")}}};
  schema["description"] = std::string(field.sentence) + " Expected: " + allowed_values(field) + ".";
  if (!field.preset.empty()) schema["default"] = json::parse(field.preset);
  return schema;
}

json::object body_schema(Endpoints endpoint, const ServedModel& served) {
  json::object properties;
  json::array required;
  for (const Field& field : fields()) {
    if ((field.endpoints & endpoint) == 0) continue;
    properties[json::string_view(field.name.data(), field.name.size())] = field_schema(field, served);
    if (field.required) required.push_back(json::string_view(field.name.data(), field.name.size()));
  }
  json::object schema{{"type", "object"},
                      {"description", "Fields that are not listed are ignored; null counts as absent."},
                      {"properties", std::move(properties)}};
  if (!required.empty()) schema["required"] = std::move(required);
  return schema;
}

json::object answer(std::string_view description, std::string_view schema, std::string_view type = "application/json") {
  return {{"description", description}, {"content", {{type, {{"schema", reference(schema)}}}}}};
}

json::object errors_of(const Route& route, bool needs_key) {
  json::object responses;
  const auto add = [&](const char* status, std::string_view description) {
    responses[status] = answer(description, "Error");
  };
  add("400", "The request is wrong; the message names the field, the value and the limit.");
  if (needs_key && !route.open) add("401", "The API key is missing or wrong.");
  if (!route.body.empty() || route.path.ends_with("{model}")) add("404", "The model is not served.");
  add("408", "The request came too slowly.");
  if (!route.body.empty()) {
    add("413", "The body is too large.");
    add("415", "The body is not application/json.");
  }
  if (route.streams) add("429", "The queue is full; see Retry-After.");
  add("431", "The header is too large.");
  add("500", "An error of the server.");
  add("503", "The model is loading, or the server drains or has too many connections.");
  return responses;
}

json::object good_answer(const Route& route) {
  if (route.answer.empty()) {
    return {{"description", "Metrics."}, {"content", {{"text/plain", {{"schema", typed("string")}}}}}};
  }
  json::object response = answer("The answer.", route.answer);
  if (route.streams) response["content"].as_object()["text/event-stream"] = {{"schema", reference("Events")}};
  return response;
}

json::object operation(const Route& route, bool needs_key) {
  json::object made{{"operationId", route.id}, {"summary", route.summary}};
  json::object responses = errors_of(route, needs_key);
  responses["200"] = good_answer(route);
  made["responses"] = std::move(responses);
  if (route.path.ends_with("{model}")) {
    made["parameters"] =
        json::array{json::object{{"name", "model"}, {"in", "path"}, {"required", true}, {"schema", typed("string")}}};
  }
  if (!route.body.empty()) {
    made["requestBody"] = {{"required", true},
                           {"content", {{"application/json", {{"schema", reference(route.body)}}}}}};
  }
  if (needs_key) made["security"] = route.open ? json::array() : json::array{json::object{{"key", json::array()}}};
  return made;
}

}  // namespace

std::string openapi_json(const ServedModel& served, const std::string& version, bool needs_key) {
  json::object paths;
  for (const Route& route : routes()) {
    paths[json::string_view(route.path.data(), route.path.size())] = {
        {route.method == "GET" ? "get" : "post", operation(route, needs_key)}};
  }
  json::object schemas = json::parse(kAnswerSchemas).as_object();
  schemas["ChatRequest"] = body_schema(kInChat, served);
  schemas["CompletionRequest"] = body_schema(kInCompletions, served);
  schemas["DetokenizeRequest"] = body_schema(kInDetokenize, served);
  json::object tokenize = body_schema(kInTokenize, served);
  for (const char* source : {"prompt", "messages", "content"}) {
    if (!tokenize.contains("oneOf")) tokenize["oneOf"] = json::array();
    tokenize["oneOf"].as_array().push_back(json::object{{"required", json::array{source}}});
  }
  schemas["TokenizeRequest"] = std::move(tokenize);
  json::object components{{"schemas", std::move(schemas)}};
  if (needs_key) components["securitySchemes"] = {{"key", {{"type", "http"}, {"scheme", "bearer"}}}};
  return json::serialize(
      json::object{{"openapi", "3.1.0"},
                   {"info",
                    {{"title", "Headwater"},
                     {"version", version},
                     {"description", "LLM inference server with the API of OpenAI and the extensions of vLLM."}}},
                   {"paths", std::move(paths)},
                   {"components", std::move(components)}});
}

}  // namespace headwater::server::openai
