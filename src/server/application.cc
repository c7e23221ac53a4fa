// Who may ask what, when: the table of routes, admission, and the one place that every answer passes.
#include "server/application.h"

#include <fmt/format.h>
#include <openssl/rand.h>

#include <algorithm>
#include <charconv>

#include "observe/observe.h"
#include "server/openai/openapi.h"

namespace headwater::server {
namespace {

bool has_prefix_without_case(std::string_view text, std::string_view lower) {
  const auto to_lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return text.size() >= lower.size() && std::ranges::equal(text.substr(0, lower.size()), lower, {}, to_lower);
}

// What a content type that we cannot read is answered with, or nothing.
std::optional<openai::ApiError> wrong_content(const http::RequestHead& head) {
  const std::string_view type = head.header("Content-Type");
  if (!type.empty() && !has_prefix_without_case(type, "application/json")) {
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

const std::vector<Application::Route>& Application::routes() {
  static const std::vector<Route> table = {
      {"POST", "/v1/chat/completions", false, true, &Application::chat_completions},
      {"POST", "/v1/completions", false, true, &Application::completions},
      {"POST", "/v1/chat/completions/render", false, true, &Application::render_chat},
      {"POST", "/v1/completions/render", false, true, &Application::render_completions},
      {"POST", "/tokenize", false, true, &Application::tokenize},
      {"POST", "/detokenize", false, true, &Application::detokenize},
      {"POST", "/v1/tokenize", false, true, &Application::tokenize},
      {"POST", "/v1/detokenize", false, true, &Application::detokenize},
      {"GET", "/v1/models", false, true, &Application::models},
      {"GET", "/v1/models/", false, true, &Application::model},
      {"GET", "/v1/cache", false, true, &Application::cache},
      {"GET", "/openapi.json", false, true, &Application::openapi},
      {"GET", "/health", true, false, &Application::health},
      {"GET", "/ping", true, false, &Application::ping},
      {"GET", "/version", true, false, &Application::version},
      {"GET", "/metrics", true, false, &Application::metrics},
  };
  return table;
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
  if (readiness_ == Readiness::kLoading) readiness_ = Readiness::kReady;
}

std::vector<const Application::Route*> Application::find(std::string_view path) {
  std::vector<const Route*> found;
  for (const Route& route : routes()) {
    const bool below = route.path.ends_with('/') && path.size() > route.path.size() && path.starts_with(route.path);
    if (path == route.path || below) found.push_back(&route);
  }
  return found;
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
  const std::vector<const Route*> candidates = find(head.path());
  const bool open = !candidates.empty() && candidates.front()->open;
  if (!open && !keys_.empty() && !keys_.find(head.header("Authorization"))) {
    return refuse({.status = 401,
                   .message = "This server needs an API key; send it as Authorization: Bearer KEY",
                   .type = "authentication_error",
                   .code = "invalid_api_key"});
  }
  if (candidates.empty()) {
    return refuse(
        {.status = 404,
         .message = fmt::format("There is no {} here; text is made by /v1/chat/completions and /v1/completions, "
                                "and /openapi.json lists all routes",
                                head.path().substr(0, 80)),
         .type = "not_found_error"});
  }
  const auto method = head.method() == "HEAD" ? std::string_view("GET") : head.method();
  const auto route = std::ranges::find(candidates, method, &Route::method);
  if (route == candidates.end()) {
    auto response = refuse({.status = 405,
                            .message = fmt::format("{} does not take {}; use {}", head.path().substr(0, 80),
                                                   head.method().substr(0, 20), candidates.front()->method)});
    response->headers.emplace_back("Allow", std::string(candidates.front()->method));
    return response;
  }
  if (method == "POST") {
    if (auto error = wrong_content(head)) return refuse(std::move(*error));
  } else if (announces_large_body(head)) {
    return refuse({.status = 413, .message = "This route reads no body; send the request without one"});
  }
  if ((*route)->needs_model && readiness_ != Readiness::kReady) {
    count(503);
    return not_ready();
  }
  return std::nullopt;
}

boost::asio::awaitable<void> Application::answer(http::Exchange& exchange) {
  struct Open {  // counts the answers in progress
    explicit Open(size_t& count) : count_(count) { ++count_; }
    ~Open() { --count_; }
    size_t& count_;
  } open(answers_open_);
  const int64_t begin_ns = SystemClock().now_ns();
  const http::RequestHead& head = exchange.head();
  const std::string method(head.method()), path(head.path());
  const std::vector<const Route*> candidates = find(path);
  const unsigned status = co_await (this->*candidates.front()->handler)(exchange);
  count(status);
  observe::logger().debug("{} {} {} {:.1f} ms", method, path, status,
                          1e-6 * static_cast<double>(SystemClock().now_ns() - begin_ns));
}

http::Response Application::failure(unsigned status, std::string message) {
  count(status);
  openai::ApiError error{.status = status, .message = std::move(message)};
  if (status >= 500) error.type = status == 503 ? "unavailable_error" : "server_error";
  return error_response(error);
}

void Application::count(unsigned status) {
  if (status == 499) metrics_.clients_gone.add();
  if (status == 401) metrics_.unauthorized.add();
  if (status == 429 || status == 503) metrics_.rejected.add();
  if (status == 500) metrics_.failed.add();
  if (status >= 400 && status < 429 && status != 401) metrics_.bad_requests.add();
}

}  // namespace headwater::server
