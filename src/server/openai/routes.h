// The routes of the server, once: the application answers them and the OpenAPI description lists them.
#pragma once

#include <span>
#include <string_view>

namespace headwater::server::openai {

struct Route {
  std::string_view method;
  std::string_view path;  // ending in "{model}": any one name there
  std::string_view id;    // operationId; the application finds its handler by it
  std::string_view summary;
  std::string_view answer;     // schema of a 200; "": plain text
  std::string_view body = {};  // schema of the request; "": none
  bool streams = false;        // may answer with server-sent events
  bool open = false;           // needs no key
  bool needs_model = true;     // 503 until the model is loaded, and while the server drains
};

std::span<const Route> routes();
// A path may be answered by several methods; null: nothing is there. method "": any.
const Route* find_route(std::string_view method, std::string_view path);

}  // namespace headwater::server::openai
