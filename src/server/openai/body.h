// The body of a request as checked fields.
#pragma once

#include <boost/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/decode.h"
#include "server/openai/fields.h"
#include "server/openai/json_text.h"

namespace headwater::server::openai {

class Body {
 public:
  // Checks every field of `endpoint` (one bit) that is a scalar or has no full support. Fields of other kinds are
  // checked by whoever reads them.
  static std::optional<ApiError> parse(std::string_view text, Endpoints endpoint, Body& out);

  // null: absent, or null.
  const boost::json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  // Fields that parse() has checked; `otherwise` when absent.
  bool boolean(std::string_view name, bool otherwise) const;
  int64_t integer(std::string_view name, int64_t otherwise) const;
  float number(std::string_view name, float otherwise) const;
  std::string string(std::string_view name) const;  // "" when absent

  // The error of a field with a wrong value, in the words of the table.
  ApiError wrong(std::string_view name) const;

  const std::vector<std::string>& unknown_fields() const { return unknown_fields_; }

 private:
  std::optional<ApiError> check_field(const Field& field, const boost::json::value& value) const;

  boost::json::object object_;
  Endpoints endpoint_ = 0;
  std::vector<std::string> unknown_fields_;
};

// [low, high] in 64 bits; no value: not an integer, or outside.
std::optional<int64_t> integer_within(const boost::json::value& value, double low, double high);
// Also as a float it is within the limits.
std::optional<float> number_within(const boost::json::value& value, double low, double high, bool above_low);

}  // namespace headwater::server::openai
