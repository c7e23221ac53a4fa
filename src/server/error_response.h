// Errors as answers.
#pragma once

#include <string>

#include "server/http/http.h"
#include "server/openai/error.h"

namespace headwater::server {

// The client went away before its answer was complete. Never sent: for the access log and the counters.
inline constexpr unsigned kClientGone = 499;

// The error object; 429 and 503 carry Retry-After, 401 WWW-Authenticate.
http::Response error_response(const openai::ApiError& error);

// What went wrong inside is in the log under the request's id, and nowhere else.
openai::ApiError internal_error(const std::string& request_id);

}  // namespace headwater::server
