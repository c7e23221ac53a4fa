// Who may ask what, when: the table of routes, admission, and the one place that every answer passes.
#include "server/application.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <charconv>

#include "observe/observe.h"
#include "server/openai/openapi.h"
#include "server/openai/routes.h"

namespace headwater::server {
namespace {

// What a content type that we cannot read is answered with, or nothing.
std::optional<openai::ApiError> wrong_content(const http::RequestHead& head) {
  // Browsers ask before they send this type to another site, so a page on the web cannot use a server of this machine.
  const std::string_view type = head.header("Content-Type");
  const std::string_view media = type.substr(0, type.find_first_of("; \t"));
  if (!boost::beast::iequals(media, "application/json")) {
    return openai::ApiError{
        .status = 415,
        .message =
            fmt::format("The content type is '{}'; send JSON with Content-Type: application/json", type.substr(0, 80))};
  }
  if (const std::string_view coding = head.header("Content-Encoding"); !coding.empty() && coding != "identity") {
    return openai::ApiError{
        .status = 415, .message = fmt::format("The body is encoded as '{}'; send it as it is", coding.substr(0, 80))};
  }
  return std::nullopt;
}

// Open routes are for everybody, and everybody could fill the memory there is for large bodies.
bool announces_large_body(const http::RequestHead& head) {
  const std::string_view length = head.header("Content-Length");
  uint64_t bytes = 0;
  const auto [end, failed] = std::from_chars(length.data(), length.data() + length.size(), bytes);
  return !head.header("Transfer-Encoding").empty() || (!length.empty() && failed != std::errc()) ||
         bytes > http::kSmallBodyBytes;
}

}  // namespace

std::string new_request_id() {
  unsigned char bytes[12];
  check(RAND_bytes(bytes, sizeof(bytes)) == 1, "the system gave no random bytes");
  return fmt::format("{:02x}", fmt::join(bytes, bytes + sizeof(bytes), ""));
}

Application::Handler Application::handler_of(std::string_view id) {
  struct Entry {
    std::string_view id;
    Handler handler;
  };
  static constexpr Entry kHandlers[] = {
      {"createChatCompletion", &Application::chat_completions},
      {"createCompletion", &Application::completions},
      {"renderChatCompletion", &Application::render_chat},
      {"renderCompletion", &Application::render_completions},
      {"tokenize", &Application::tokenize},
      {"tokenizeV1", &Application::tokenize},
      {"detokenize", &Application::detokenize},
      {"detokenizeV1", &Application::detokenize},
      {"listModels", &Application::models},
      {"getModel", &Application::model},
      {"getCache", &Application::cache},
      {"getDescription", &Application::openapi},
      {"getHealth", &Application::health},
      {"ping", &Application::ping},
      {"getVersion", &Application::version},
      {"getMetrics", &Application::metrics},
  };
  const auto entry = std::ranges::find(kHandlers, id, &Entry::id);
  return entry == std::end(kHandlers) ? nullptr : entry->handler;
}

Application::Application(ApplicationConfig config, KeyStore keys)
    : config_(std::move(config)), keys_(std::move(keys)) {}

Application::~Application() {
  decoders_.small.join();
  decoders_.large.join();
}

void Application::start_serving(const Serving& serving) {
  serving_.emplace(serving);
  openapi_ = openai::openapi_json(serving.model, config_.version, !keys_.empty());
  for (const openai::Route& route : openai::routes()) {
    check(handler_of(route.id) != nullptr, "a route has no handler");
  }
  if (readiness_ == Readiness::kLoading) readiness_ = Readiness::kReady;
}

std::optional<http::Response> Application::refuse(openai::ApiError error) {
  count(error.status);
  return error_response(error);
}

std::optional<http::Response> Application::not_ready() const {
  if (readiness_ == Readiness::kReady) return std::nullopt;
  const bool loading = readiness_ == Readiness::kLoading;
  return error_response({.status = 503,
                         .message = loading ? "Loading model" : "The server is shutting down",
                         .type = "unavailable_error",
                         .code = loading ? "loading" : "draining"});
}

std::optional<http::Response> Application::admit(const http::RequestHead& head) {
  metrics_.requests.add();
  const openai::Route* known = openai::find_route("", head.path());
  const bool open = known != nullptr && known->open;
  if (!open && !keys_.empty() && !keys_.find(head.header("Authorization"))) {
    return refuse({.status = 401,
                   .message = "This server needs an API key; send it as Authorization: Bearer KEY",
                   .type = "authentication_error",
                   .code = "invalid_api_key"});
  }
  if (known == nullptr) {
    return refuse(
        {.status = 404,
         .message = fmt::format("There is no {} here; text is made by /v1/chat/completions and /v1/completions, "
                                "and /openapi.json lists all routes",
                                head.path().substr(0, 80)),
         .type = "not_found_error"});
  }
  const auto method = head.method() == "HEAD" ? std::string_view("GET") : head.method();
  const openai::Route* route = openai::find_route(method, head.path());
  if (route == nullptr) {
    auto response = refuse({.status = 405,
                            .message = fmt::format("{} does not take {}; use {}", head.path().substr(0, 80),
                                                   head.method().substr(0, 20), known->method)});
    response->headers.emplace_back("Allow", std::string(known->method));
    return response;
  }
  if (method == "POST") {
    if (auto error = wrong_content(head)) return refuse(std::move(*error));
  } else if (announces_large_body(head)) {
    return refuse({.status = 413, .message = "This route reads no body; send the request without one"});
  }
  if (route->needs_model && readiness_ != Readiness::kReady) return not_ready();
  return std::nullopt;
}

boost::asio::awaitable<void> Application::answer(http::Exchange& exchange) {
  struct Open {  // counts the answers in progress
    explicit Open(size_t& count) : count_(count) { ++count_; }
    ~Open() { --count_; }
    size_t& count_;
  } open(answers_open_);
  const int64_t begin_ns = SystemClock().now_ns();
  const std::string id = new_request_id();
  const http::RequestHead& head = exchange.head();
  const std::string method(head.method()), path(head.path());
  const openai::Route* route = openai::find_route(method == "HEAD" ? "GET" : method, path);
  unsigned status = 500;
  try {
    status = co_await (this->*handler_of(route->id))(exchange, id);
  } catch (const std::exception& problem) {
    observe::logger().error("request {}: {}", id, problem.what());
  }
  if (status == 500 && !exchange.has_begun()) {  // an answer that has begun ends with its connection
    http::Response response = error_response(internal_error(id));
    response.headers.emplace_back("X-Request-Id", id);
    co_await exchange.respond(std::move(response));
  }
  count(status);
  observe::logger().debug("{} {} {} {:.1f} ms, request {}", method, path, status,
                          1e-6 * static_cast<double>(SystemClock().now_ns() - begin_ns), id);
}

http::Response Application::failure(unsigned status, std::string message) {
  count(status);
  openai::ApiError error{.status = status, .message = std::move(message)};
  if (status >= 500) error.type = status == 503 ? "unavailable_error" : "server_error";
  return error_response(error);
}

void Application::count(unsigned status) {
  if (status == kClientGone) metrics_.clients_gone.add();
  if (status == 401) metrics_.unauthorized.add();
  if (status == 429 || status == 503) metrics_.rejected.add();
  if (status == 500) metrics_.failed.add();
  if (status >= 400 && status < kClientGone && status != 401 && status != 429) metrics_.bad_requests.add();
}

}  // namespace headwater::server
