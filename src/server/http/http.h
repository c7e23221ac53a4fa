// Door of the room: HTTP/1.1 over TCP or TLS on Boost.Beast and Boost.Asio coroutines. It knows connections, limits and
// time-outs; what a request means is the Application's business.
//
//   Listener --accept--> connection: read header -> Application::admit -> read body -> Application::answer -> next request
//
// Threads: everything here, the Application included, runs on the one thread that runs the io_context. Nothing blocks it.
//
// What a connection promises
//   1. Every limit of Limits holds before memory is taken for what exceeds it; the client is told (408, 413, 431, ...) by
//      a body that Application::failure() makes, then the connection closes. A body takes memory as it arrives, not as its
//      Content-Length promises.
//   2. While a request is being answered the socket is watched: a client that closes, or shuts down its sending side,
//      is gone at once (Exchange::on_client_gone), also before the first byte of an answer.
//   3. A client that does not read only stops its own Exchange::write(); after write_timeout it is dropped.
//   4. Pipelined requests are answered in order. HTTP/1.0 clients get streams that end with the connection.
//   5. A request that two servers might read differently (two lengths, a length and a coding, a coding other than chunked,
//      not one Host) gets 400 and ends the connection.
//   6. Before the server closes, it lets the client read the last answer: it sends its end, and for up to 2 s drops what
//      still arrives.
//   7. Where there is no room for one more connection, the one that has waited longest for a request to begin is closed,
//      if that is kIdleMin or more; HTTP lets a server do that at any time.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/core.h"

namespace headwater::server::http {

struct Limits {
  uint64_t body_bytes = 8u << 20;      // 413
  uint64_t bodies_bytes = 256u << 20;  // of requests and answers in progress, beyond kSmallBodyBytes of each; 503
  uint32_t header_bytes = 64u << 10;   // request line and header fields; 431
  uint32_t headers = 100;              // fields; 431
  uint32_t connections = 1024;         // one more takes the place of one that says nothing, or gets 503
  std::chrono::milliseconds header_timeout{
      10'000};  // from accept or the first byte of a request to its whole header; 408
  std::chrono::milliseconds body_timeout{30'000};   // from the header to the whole body; 408
  std::chrono::milliseconds idle_timeout{75'000};   // between requests; closed without a word
  std::chrono::milliseconds write_timeout{30'000};  // no byte of a write was taken for this long: dropped
};

inline constexpr std::chrono::milliseconds kIdleMin{1'000};
inline constexpr uint64_t kSmallBodyBytes = 64u << 10;  // what any may have, however many large ones there are

struct TlsFiles {           // PEM. Both empty: plain HTTP
  std::string certificate;  // chain
  std::string key;
};

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Response {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;  // of a stream: unused
  Headers headers;   // beyond Content-Type, Content-Length, Connection, Date
};

// The header of a request.
class RequestHead {
 public:
  virtual ~RequestHead() = default;
  virtual std::string_view method() const = 0;  // "GET"
  virtual std::string_view path() const = 0;    // before '?', as it was sent; of http://host/path: /path
  virtual std::string_view query() const = 0;   // behind '?'; "" without
  virtual std::string_view header(std::string_view name) const = 0;  // any case; "" when absent; the first of several
};

// One request and its answer. Exactly one of respond() and begin_stream() ... end_stream(). A false answer of any of them:
// the client is gone, and nothing more can be said.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual const RequestHead& head() const = 0;
  virtual std::string take_body() = 0;
  virtual void
  release_body() = 0;  // what take_body() gave is needed no longer: its part of Limits::bodies_bytes is free
  virtual bool has_begun() const = 0;  // respond() or begin_stream() was called
  virtual bool client_gone() const = 0;
  // Called once, on this thread, when the client is gone; at once if it already is. An empty function clears it.
  virtual void on_client_gone(std::function<void()> callback) = 0;
  virtual boost::asio::awaitable<bool> respond(Response response) = 0;  // HEAD: the body is left out
  virtual boost::asio::awaitable<bool> begin_stream(Response head) = 0;
  virtual boost::asio::awaitable<bool> write(std::string_view bytes) = 0;  // not empty; one chunk, sent at once
  virtual boost::asio::awaitable<bool> end_stream(std::string_view last = {}) = 0;  // `last` goes out with the end
};

class Application {
 public:
  virtual ~Application() = default;
  // Before the body is read: an answer that refuses the request (its body is then not read), or nothing.
  virtual std::optional<Response> admit(const RequestHead& head) = 0;
  // A return without an answer, or an exception, becomes 500; an unfinished stream ends with the connection.
  virtual boost::asio::awaitable<void> answer(Exchange& exchange) = 0;
  // The answer to what is wrong with the protocol itself: 400, 408, 413, 431, 503; and 500. `message` says what to do.
  virtual Response failure(unsigned status, std::string message) = 0;
};

// Accepts on one address. Its connections live on when it is closed: drain, then run the io_context until connections() is 0.
// Its destruction drops those that are left; the Application must live until the io_context has run dry or is destroyed.
class Listener {
 public:
  // host: a numeric address or a name; port 0: any free one. Errors name the address and what to do.
  static Result<std::unique_ptr<Listener>> open(boost::asio::io_context& io, const std::string& host, uint16_t port,
                                                const Limits& limits, const TlsFiles& tls, Application& application);
  virtual ~Listener() = default;
  virtual uint16_t port() const = 0;
  virtual size_t connections() const = 0;
  virtual void stop_accepting() = 0;  // and close idle connections; others close after the answer in progress
  virtual void drop_all() = 0;        // every connection, whatever it is doing: its client counts as gone
};

}  // namespace headwater::server::http
