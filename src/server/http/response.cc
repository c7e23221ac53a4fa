#include "server/http/response.h"

#include <fmt/chrono.h>

#include <ctime>

namespace headwater::server::http {
namespace {

namespace wire = boost::beast::http;

template <class Message>
void describe(Message& message, const Response& response, Framing framing) {
  message.version(framing.version);
  message.result(response.status);
  message.set(wire::field::server, "headwater");
  message.set(wire::field::date, fmt::format("{:%a, %d %b %Y %H:%M:%S} GMT", fmt::gmtime(std::time(nullptr))));
  if (!response.content_type.empty()) message.set(wire::field::content_type, response.content_type);
  for (const auto& [name, value] : response.headers) message.insert(name, value);
  message.keep_alive(framing.keep_alive);
}

}  // namespace

bool has_body(unsigned status) {
  return status != 204 && status != 304;
}

FullMessage full_message(Response response, Framing framing) {
  FullMessage message;
  describe(message, response, framing);
  message.content_length(response.body.size());
  message.body() = std::move(response.body);
  return message;
}

HeadMessage head_message(const Response& response, Framing framing) {
  HeadMessage message;
  describe(message, response, framing);
  if (has_body(response.status)) message.content_length(response.body.size());
  return message;
}

HeadMessage stream_message(const Response& response, Framing framing) {
  HeadMessage message;
  describe(message, response, framing);
  message.chunked(framing.version >= 11);
  return message;
}

}  // namespace headwater::server::http
