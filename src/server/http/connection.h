// The connections of one listener: what they share, and what the listener may ask of one.
//
// A connection is owned by its own coroutine (and by the read in progress), and counts in Site::live while it exists.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <unordered_set>

#include "server/http/http.h"

namespace headwater::server::http {

class Connection;

struct Site {
  boost::asio::io_context& io;
  const Limits limits;
  Application& application;
  std::optional<boost::asio::ssl::context> tls;
  boost::asio::steady_timer sweep;  // of the deadlines; woken when the last connection ends
  std::unordered_set<Connection*> live;
  uint64_t bodies_bytes = 0;  // shares of the bodies of requests and answers in progress
  size_t refused = 0;         // of those live: being told that there are too many
  bool draining = false;      // no request after the one in progress
};

class Connection {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  Connection(std::shared_ptr<Site> site, bool refused);
  virtual ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  virtual void expire(TimePoint now) = 0;    // gives up what waits beyond its deadline
  virtual TimePoint idle_since() const = 0;  // TimePoint::max(): it is not
  virtual void close_if_idle() = 0;
  virtual void drop() = 0;

 protected:
  const std::shared_ptr<Site> site_;
  const bool refused_;
};

// Starts the coroutine of a connection on this socket, with TLS if the site has it. refused: it only hears 503.
void start_connection(std::shared_ptr<Site> site, boost::asio::ip::tcp::socket socket, bool refused);

}  // namespace headwater::server::http
