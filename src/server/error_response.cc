#include "server/error_response.h"

namespace headwater::server {

http::Response error_response(const openai::ApiError& error) {
  http::Response response{.status = error.status, .body = openai::error_json(error)};
  if (error.status == 429 || error.status == 503) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

openai::ApiError internal_error(const std::string& request_id) {
  return {.status = 500,
          .message = "The server could not complete the answer; its log knows more about request " + request_id,
          .type = "server_error"};
}

}  // namespace headwater::server
