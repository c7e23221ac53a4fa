// From Response to Beast's message.
#pragma once

#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "server/http/http.h"

namespace headwater::server::http {

using FullMessage = boost::beast::http::response<boost::beast::http::string_body>;
using HeadMessage = boost::beast::http::response<boost::beast::http::empty_body>;

struct Framing {
  unsigned version = 11;  // of the request: 10 or 11
  bool keep_alive = false;
};

// With Content-Length.
FullMessage full_message(Response response, Framing framing);
// The header alone of the same answer: to HEAD, or of a status that has no body (204, 304).
HeadMessage head_message(const Response& response, Framing framing);
// The header of a stream: chunked for HTTP/1.1; for HTTP/1.0 it ends with the connection.
HeadMessage stream_message(const Response& response, Framing framing);

bool has_body(unsigned status);

}  // namespace headwater::server::http
