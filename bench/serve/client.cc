#include "bench/serve/client.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <boost/json.hpp>

#include "bench/serve/event_stream.h"

namespace headwater::bench::serve {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
namespace json = boost::json;
using Millis = std::chrono::milliseconds;
using ErrorCodeOfBoost = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kMessageBytesMax = 300;

template <typename Request>
void set_fields(Request& request, const Target& target) {
  request.set(http::field::host, target.host);
  request.set(http::field::user_agent, "headwater-bench");
  if (!target.api_key.empty()) request.set(http::field::authorization, "Bearer " + target.api_key);
  if (request.method() == http::verb::post) request.set(http::field::content_type, "application/json");
  request.prepare_payload();
}

asio::awaitable<void> fetch_whole(asio::io_context& io, const Target& target,
                                  const http::request<http::string_body>& request, Millis timeout, Fetched& fetched,
                                  ErrorCodeOfBoost& failed) {
  beast::tcp_stream stream(io);
  stream.expires_after(timeout);
  co_await stream.async_connect(target.address, asio::redirect_error(asio::use_awaitable, failed));
  if (failed) co_return;
  co_await http::async_write(stream, request, asio::redirect_error(asio::use_awaitable, failed));
  if (failed) co_return;
  beast::flat_buffer buffer;
  http::response<http::string_body> response;
  co_await http::async_read(stream, buffer, response, asio::redirect_error(asio::use_awaitable, failed));
  fetched.status = response.result_int();
  fetched.body = std::move(response.body());
}

Result<Fetched> fetch_request(const Target& target, http::request<http::string_body> request, Millis timeout) {
  set_fields(request, target);
  asio::io_context io(1);
  Fetched fetched;
  ErrorCodeOfBoost failed;
  asio::co_spawn(io, fetch_whole(io, target, request, timeout, fetched, failed), asio::detached);
  io.run();
  if (failed) {
    return error(ErrorCode::kNotFound, "http://{}{}: {}", target.host, std::string(request.target()), failed.message());
  }
  return fetched;
}

uint64_t count_of(const json::object& usage, const char* name) {
  const json::value* number = usage.if_contains(name);
  ErrorCodeOfBoost failed;
  const auto count = number == nullptr ? 0 : number->to_number<uint64_t>(failed);
  return failed ? 0 : count;
}

// The text of a chunk's first choice, whichever the endpoint; null when there is none.
const json::string* text_of(const json::object& event) {
  const json::value* choices = event.if_contains("choices");
  if (choices == nullptr || !choices->is_array() || choices->get_array().empty()) return nullptr;
  const json::object* choice = choices->get_array()[0].if_object();
  if (choice == nullptr) return nullptr;
  const json::value* text = choice->if_contains("text");
  if (const json::value* delta = choice->if_contains("delta"); delta != nullptr && delta->is_object()) {
    text = delta->get_object().if_contains("content");
  }
  return text == nullptr ? nullptr : text->if_string();
}

// "message" of an OpenAI error body, or the body's begin.
std::string error_message(const std::string& body) {
  ErrorCodeOfBoost failed;
  const json::value value = json::parse(body, failed);
  if (!failed && value.is_object()) {
    const json::value* object = value.get_object().if_contains("error");
    const json::value* message = object != nullptr && object->is_object() ? object->get_object().if_contains("message")
                                                                          : value.get_object().if_contains("message");
    if (message != nullptr && message->is_string()) {
      return std::string(message->get_string().subview(0, kMessageBytesMax));
    }
  }
  return body.substr(0, kMessageBytesMax);
}

}  // namespace

Result<Target> Target::of_url(const std::string& url, const std::string& api_key) {
  constexpr std::string_view kScheme = "http://";
  if (url.rfind(kScheme, 0) != 0) {
    return error(ErrorCode::kInvalidArgument, "--url {}: only http://host[:port][/path] is driven; TLS is not", url);
  }
  Target target;
  const size_t slash = std::min(url.find('/', kScheme.size()), url.size());
  target.host = url.substr(kScheme.size(), slash - kScheme.size());
  target.prefix = url.substr(slash);
  while (!target.prefix.empty() && target.prefix.back() == '/') target.prefix.pop_back();
  if (target.prefix.ends_with("/v1")) target.prefix.resize(target.prefix.size() - 3);
  target.api_key = api_key;
  std::string name = target.host, port = "80";
  if (const size_t colon = name.rfind(':'); colon != std::string::npos && name.find(']', colon) == std::string::npos) {
    port = name.substr(colon + 1);
    name.resize(colon);
  }
  if (name.size() > 2 && name.front() == '[' && name.back() == ']') name = name.substr(1, name.size() - 2);
  asio::io_context io;
  asio::ip::tcp::resolver resolver(io);
  ErrorCodeOfBoost failed;
  const auto found = resolver.resolve(name, port, failed);
  if (failed || found.empty()) {
    return error(ErrorCode::kInvalidArgument, "--url {}: '{}' port '{}' is not found: {}", url, name, port,
                 failed.message());
  }
  target.address = found.begin()->endpoint();
  return target;
}

Result<Fetched> fetch(const Target& target, const std::string& path, Millis timeout) {
  return fetch_request(target, {http::verb::get, target.prefix + path, 11}, timeout);
}

Result<Fetched> fetch_post(const Target& target, const std::string& path, const std::string& json_body,
                           Millis timeout) {
  return fetch_request(target, {http::verb::post, target.prefix + path, 11, json_body}, timeout);
}

// The state of one answer: events become chunks, usage and errors.
struct Connection::Stream {
  explicit Stream(Answer& to) : answer(to) {}
  Answer& answer;
  SteadyClock::time_point start = SteadyClock::now();
  EventStream events;
  bool answered = false;  // the header was there
  bool done = false;      // [DONE] was there

  double elapsed() const { return std::chrono::duration<double>(SteadyClock::now() - start).count(); }

  // The first failure counts: what follows an error event is its consequence.
  void fail(std::string failure, std::string message = "") {
    if (!answer.failure.empty()) return;
    answer.end = Answer::End::kFailed;
    answer.failure = std::move(failure);
    answer.message = std::move(message);
  }
  void fail(const ErrorCodeOfBoost& code) {
    fail(code == beast::error::timeout ? "timeout" : "closed", code.message());
  }

  void take_event(std::string_view data, const std::function<void()>& on_chunk) {
    if (data == "[DONE]") {
      done = true;
      return;
    }
    ErrorCodeOfBoost bad;
    const json::value value = json::parse(data, bad);
    const json::object* event = bad ? nullptr : value.if_object();
    if (event == nullptr) return fail("not JSON", std::string(data.substr(0, kMessageBytesMax)));
    if (event->if_contains("error") != nullptr) return fail("error event", error_message(std::string(data)));
    if (const json::string* text = text_of(*event); text != nullptr && !text->empty()) {
      answer.chunk_s.push_back(elapsed());
      answer.text.append(text->data(), text->size());
      if (on_chunk) on_chunk();
    }
    const json::value* usage = event->if_contains("usage");
    if (usage == nullptr || !usage->is_object()) return;
    answer.prompt_tokens = count_of(usage->get_object(), "prompt_tokens");
    answer.completion_tokens = count_of(usage->get_object(), "completion_tokens");
    const json::value* details = usage->get_object().if_contains("prompt_tokens_details");
    if (details != nullptr && details->is_object()) {
      answer.cached_tokens = count_of(details->get_object(), "cached_tokens");
    }
  }
};

Connection::Connection(asio::io_context& io, const Target& target, std::string path)
    : target_(target), path_(target.prefix + std::move(path)), stream_(io) {}

void Connection::close(bool reset) {
  ErrorCodeOfBoost ignored;
  if (reset) stream_.socket().set_option(asio::socket_base::linger(true, 0), ignored);
  stream_.socket().close(ignored);
  buffer_.clear();
  open_ = false;
}

asio::awaitable<void> Connection::pause(Millis duration) {
  asio::steady_timer timer(stream_.get_executor(), duration);
  ErrorCodeOfBoost ignored;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, ignored));
}

asio::awaitable<void> Connection::open(const StreamRequest& request, ErrorCodeOfBoost& failed) {
  stream_.expires_after(request.timeout);
  if (open_) co_return;
  if (request.receive_buffer_bytes > 0) {  // before connecting: it sets the window that is offered
    stream_.socket().open(target_.address.protocol(), failed);
    const asio::socket_base::receive_buffer_size size(request.receive_buffer_bytes);
    if (!failed) stream_.socket().set_option(size, failed);
    if (failed) co_return;
  }
  co_await stream_.async_connect(target_.address, asio::redirect_error(asio::use_awaitable, failed));
  if (failed) co_return;
  open_ = true;
  ErrorCodeOfBoost ignored;
  stream_.socket().set_option(asio::ip::tcp::no_delay(true), ignored);
}

asio::awaitable<void> Connection::send(const StreamRequest& request, ErrorCodeOfBoost& failed) {
  if (vanishes(request, Vanish::Point::kBeforeSend)) {
    const std::string begin = "POST " + path_ + " HTTP/1.1\r\nHost: " + target_.host + "\r\nContent-Le";
    co_await asio::async_write(stream_, asio::buffer(begin), asio::redirect_error(asio::use_awaitable, failed));
    co_return;
  }
  http::request<http::span_body<const char>> message(http::verb::post, path_, 11);
  message.body() = beast::span<const char>(request.body->data(), request.body->size());
  set_fields(message, target_);
  co_await http::async_write(stream_, message, asio::redirect_error(asio::use_awaitable, failed));
}

asio::awaitable<void> Connection::receive(const StreamRequest& request, Stream& stream) {
  ErrorCodeOfBoost failed;
  http::response_parser<http::buffer_body> parser;
  parser.body_limit(boost::none);
  co_await http::async_read_header(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failed));
  if (failed) co_return stream.fail(failed);
  stream.answered = true;
  const unsigned status = parser.get().result_int();
  const std::function<void(std::string_view)> on_event = [&stream, &request](std::string_view data) {
    stream.take_event(data, request.on_chunk);
  };
  std::array<char, 16384> bytes;
  std::string body;  // of an answer that is no stream
  const auto take = [&](std::string_view fresh) {
    if (status == 200 && !stream.events.feed(fresh, on_event)) stream.fail("event too long");
    if (status != 200 && body.size() < bytes.size()) body += fresh;
  };
  while (!parser.is_done()) {
    parser.get().body().data = bytes.data();
    parser.get().body().size = bytes.size();
    co_await http::async_read_some(stream_, buffer_, parser, asio::redirect_error(asio::use_awaitable, failed));
    if (failed == http::error::need_buffer) failed = {};
    take({bytes.data(), bytes.size() - parser.get().body().size});
    if (failed) co_return stream.fail(failed);
    const bool enough = request.vanish.chunks > 0 && stream.answer.chunk_s.size() >= request.vanish.chunks;
    if (enough && vanishes(request, Vanish::Point::kPaused)) co_await pause(request.vanish.pause);
    if (enough) {
      stream.answer.end = Answer::End::kVanished;
      co_return;
    }
  }
  if (!parser.keep_alive()) close();
  if (status == 429) {
    stream.answer.end = Answer::End::kRejected;
    stream.answer.retry_after = parser.get().count(http::field::retry_after) > 0;
  } else if (status != 200) {
    stream.fail(std::to_string(status), error_message(body));
  } else if (!stream.done) {
    stream.fail("closed", "no [DONE]");
  } else if (stream.answer.failure.empty()) {
    stream.answer.end = Answer::End::kComplete;
  }
}

asio::awaitable<void> Connection::ask(StreamRequest request, Answer& answer) {
  Stream stream(answer);
  ErrorCodeOfBoost failed;
  const bool reused = open_;
  co_await open(request, failed);
  if (failed) {
    stream.fail("connect", failed.message());
    close();
    co_return;
  }
  co_await send(request, failed);
  if (failed) {
    stream.fail(failed);
  } else if (vanishes(request, Vanish::Point::kBeforeSend) || vanishes(request, Vanish::Point::kWaiting)) {
    co_await pause(request.vanish.pause);
    answer.end = Answer::End::kVanished;
  } else {
    co_await receive(request, stream);
  }
  if (reused && !stream.answered && answer.failure == "closed") {  // the server had closed the idle connection
    close();
    answer = {};
    co_await ask(request, answer);
    co_return;
  }
  answer.seconds = stream.elapsed();
  if (answer.end == Answer::End::kFailed || answer.end == Answer::End::kVanished) close(request.vanish.reset);
}

}  // namespace headwater::bench::serve
