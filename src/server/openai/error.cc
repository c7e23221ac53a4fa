#include "server/openai/error.h"

#include <boost/json.hpp>

#include "text/utf8.h"

namespace headwater::server::openai {

std::string error_json(const ApiError& error) {
  namespace json = boost::json;
  const auto or_null = [](const std::string& text) { return text.empty() ? json::value(nullptr) : json::value(text); };
  std::string message;
  text::append_valid_utf8(error.message, message);
  return json::serialize(json::object{
      {"error",
       {{"message", message}, {"type", error.type}, {"param", or_null(error.param)}, {"code", or_null(error.code)}}}});
}

}  // namespace headwater::server::openai
