// An HTTP/1.1 client for OpenAI-compatible servers, on Boost.Beast coroutines: one streamed request at a time on a
// connection that is kept for the next. Plain HTTP.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <chrono>
#include <functional>
#include <string>

#include "bench/serve/answer.h"
#include "core/core.h"

namespace headwater::bench::serve {

struct Target {
  boost::asio::ip::tcp::endpoint address;
  std::string host;    // as the Host header says it
  std::string prefix;  // of every path: "" or "/something"; a trailing /v1 is left out
  std::string api_key;

  // "http://host:port[/path]"; looks the name up.
  static Result<Target> of_url(const std::string& url, const std::string& api_key);
};

// A request and its answer as a whole.
struct Fetched {
  unsigned status = 0;
  std::string body;
};
Result<Fetched> fetch(const Target& target, const std::string& path, std::chrono::milliseconds timeout);
Result<Fetched> fetch_post(const Target& target, const std::string& path, const std::string& json_body,
                           std::chrono::milliseconds timeout);

// Where a client that is meant to vanish does so.
struct Vanish {
  enum class Point : uint8_t { kNever, kBeforeSend, kWaiting, kMidStream, kPaused };
  Point point = Point::kNever;
  std::chrono::milliseconds pause{0};  // waiting: after the request; paused: without reading, after `chunks`
  uint32_t chunks = 0;                 // mid-stream and paused: pieces of text that were read
  bool reset = false;                  // by RST instead of FIN
};

struct StreamRequest {
  const std::string* body = nullptr;
  Vanish vanish;
  std::chrono::milliseconds timeout{600'000};
  int receive_buffer_bytes = 0;    // 0: the system's
  std::function<void()> on_chunk;  // may be null
};

class Connection {
 public:
  Connection(boost::asio::io_context& io, const Target& target, std::string path);

  // Opens the connection where it is not open; `answer` is complete when the coroutine ends.
  boost::asio::awaitable<void> ask(StreamRequest request, Answer& answer);

 private:
  struct Stream;  // of one answer
  boost::asio::awaitable<void> open(const StreamRequest& request, boost::system::error_code& failed);
  boost::asio::awaitable<void> send(const StreamRequest& request, boost::system::error_code& failed);
  boost::asio::awaitable<void> receive(const StreamRequest& request, Stream& stream);
  boost::asio::awaitable<void> pause(std::chrono::milliseconds duration);
  bool vanishes(const StreamRequest& request, Vanish::Point point) const { return request.vanish.point == point; }
  void close(bool reset = false);

  const Target& target_;
  std::string path_;
  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  bool open_ = false;
};

}  // namespace headwater::bench::serve
