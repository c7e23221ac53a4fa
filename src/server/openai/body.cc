#include "server/openai/body.h"

#include <algorithm>
#include <cmath>

#include "core/core.h"

namespace headwater::server::openai {
namespace {

namespace json = boost::json;
constexpr size_t kUnknownFieldsMax = 32;  // reported

bool fits_kind(const Field& field, const json::value& value) {
  switch (field.kind) {
    case FieldKind::kBoolean: return value.is_bool();
    case FieldKind::kInteger: return integer_within(value, field.min, field.max).has_value();
    case FieldKind::kNumber: return number_within(value, field.min, field.max, field.above_min).has_value();
    case FieldKind::kLogprobs: return value.is_bool() || integer_within(value, field.min, field.max).has_value();
    case FieldKind::kObject: return value.is_object();
    case FieldKind::kText: return value.is_string();
    case FieldKind::kString: {
      const json::string* text = value.if_string();
      return text != nullptr && (std::isinf(field.min) || static_cast<double>(text->size()) >= field.min) &&
             (std::isinf(field.max) || static_cast<double>(text->size()) <= field.max);
    }
    default: return true;
  }
}

bool asks_for_nothing(const Field& field, const json::value& value) {
  const json::value neutral = json::parse(field.neutral);
  return std::ranges::find(neutral.as_array(), value) != neutral.as_array().end();
}

}  // namespace

std::optional<int64_t> integer_within(const json::value& value, double low, double high) {
  boost::system::error_code failed;
  if (!value.is_number()) return std::nullopt;
  const auto number = value.to_number<int64_t>(failed);
  const auto approximate = static_cast<double>(number);
  if (failed || approximate < low || approximate > high) return std::nullopt;
  return number;
}

std::optional<float> number_within(const json::value& value, double low, double high, bool above_low) {
  if (!value.is_number()) return std::nullopt;
  boost::system::error_code failed;
  const auto number = value.to_number<double>(failed);
  if (failed || !std::isfinite(number) || number < low || number > high) return std::nullopt;
  const auto rounded = static_cast<float>(number);
  if (above_low && rounded <= static_cast<float>(low)) return std::nullopt;
  return rounded;
}

std::optional<ApiError> Body::parse(std::string_view text, Endpoints endpoint, Body& out) {
  json::value value;
  if (auto failed = parse_json(text, value)) return failed;
  if (!value.is_object()) return ApiError{.message = "the body is " + quoted(value) + "; expected a JSON object"};
  out = {};
  out.object_ = std::move(value.as_object());
  out.endpoint_ = endpoint;
  for (const auto& [name, entry] : out.object_) {
    const Field* field = find_field(std::string_view(name.data(), name.size()), endpoint);
    if (field == nullptr) {
      if (out.unknown_fields_.size() < kUnknownFieldsMax)
        out.unknown_fields_.push_back(cut_text(std::string_view(name.data(), name.size())));
    } else if (!entry.is_null()) {
      if (auto failed = out.check_field(*field, entry)) return failed;
    }
  }
  for (const Field& field : fields()) {
    if (field.required && (field.endpoints & endpoint) != 0 && !out.has(field.name)) {
      return ApiError{.message = fmt::format("\"{}\" is missing; expected {}", field.name, allowed_values(field)),
                      .param = std::string(field.name)};
    }
  }
  return std::nullopt;
}

std::optional<ApiError> Body::check_field(const Field& field, const json::value& value) const {
  if (field.support != Support::kNeutral) {
    return fits_kind(field, value) ? std::nullopt : std::optional(wrong(field.name));
  }
  if (asks_for_nothing(field, value)) return std::nullopt;
  return ApiError{.message = fmt::format("\"{}\" is {}; expected {}. {}", field.name, quoted(value),
                                         allowed_values(field), field.sentence),
                  .param = std::string(field.name),
                  .code = "unsupported_parameter"};
}

const json::value* Body::find(std::string_view name) const {
  const json::value* value = object_.if_contains(json::string_view(name.data(), name.size()));
  return value == nullptr || value->is_null() ? nullptr : value;
}

bool Body::boolean(std::string_view name, bool otherwise) const {
  const json::value* value = find(name);
  return value == nullptr ? otherwise : value->as_bool();
}

int64_t Body::integer(std::string_view name, int64_t otherwise) const {
  const json::value* value = find(name);
  return value == nullptr ? otherwise : value->to_number<int64_t>();
}

float Body::number(std::string_view name, float otherwise) const {
  const json::value* value = find(name);
  return value == nullptr ? otherwise : static_cast<float>(value->to_number<double>());
}

std::string Body::string(std::string_view name) const {
  const json::value* value = find(name);
  return value == nullptr ? std::string() : std::string(value->as_string());
}

ApiError Body::wrong(std::string_view name) const {
  const Field* field = find_field(name, endpoint_);
  check(field != nullptr, "a field that is read must be in the table");
  return wrong_value(name, object_.at(json::string_view(name.data(), name.size())), allowed_values(*field));
}

}  // namespace headwater::server::openai
