// The error object of the OpenAI API: {"error": {"message", "type", "param", "code"}}.
#pragma once

#include <string>

namespace headwater::server::openai {

struct ApiError {
  unsigned status = 400;  // of HTTP
  std::string message;    // names the value, the limit and the remedy
  std::string type =
      "invalid_request_error";  // also: authentication_error, not_found_error, rate_limit_error, server_error
  std::string param = {};       // the field; "": null
  std::string code = {};        // e.g. context_length_exceeded; "": null
};

std::string error_json(const ApiError& error);  // valid UTF-8 whatever the message quotes

}  // namespace headwater::server::openai
