// A live Listener on a thread with a small application, and raw blocking clients on loopback.
#pragma once

#include <openssl/ssl.h>

#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "server/http/http.h"

namespace headwater::test {

using namespace server::http;

// GET/POST /echo          "<method> <path> <query> <body>"
// /stream?chunks=&bytes=&pause=   that many chunks, `pause` milliseconds apart
// /hang                   answers nothing until the client is gone
// /large?bytes=           one answer of that size
// /refuse                 401 before the body is read
// /empty /nothing /throw  204; no answer; an exception
class SmallApplication final : public Application {
 public:
  std::optional<Response> admit(const RequestHead& head) override;
  boost::asio::awaitable<void> answer(Exchange& exchange) override;
  Response failure(unsigned status, std::string message) override;

  std::atomic<int> begun = 0, ended = 0, gone = 0, admitted = 0;  // answers; on_client_gone calls; admit calls
  std::atomic<int64_t> write_ns = 0, writes = 0;                  // inside Exchange::write()

 private:
  boost::asio::awaitable<void> stream(Exchange& exchange);
  boost::asio::awaitable<void> hang(Exchange& exchange);
};

// Small enough that a test takes less than a second.
Limits quick_limits();

class LiveServer {
 public:
  explicit LiveServer(Limits limits = quick_limits(), TlsFiles tls = {});
  ~LiveServer();

  uint16_t port() const { return port_; }
  size_t connections();
  void on_thread(std::function<void()> call);  // runs it on the server's thread and waits
  bool wait_until_empty(int seconds = 10);     // connections() is 0
  Listener& listener() { return *listener_; }

  SmallApplication application;

 private:
  boost::asio::io_context io_;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work_;
  std::unique_ptr<Listener> listener_;
  uint16_t port_ = 0;
  std::thread thread_;
};

struct Reply {
  int status = 0;                              // 0: the connection ended before a whole header
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  bool complete = false;  // the body ended as its framing says
};

class Client {
 public:
  explicit Client(uint16_t port, bool tls = false, int receive_buffer = 0);
  ~Client();
  Client(Client&& other) noexcept;
  Client(const Client&) = delete;

  bool connected() const { return connected_; }
  int native() const { return socket_; }
  bool send(std::string_view bytes);
  void send_slowly(std::string_view bytes);  // one byte at a time
  Reply receive(bool to_head = false);
  std::string receive_some(size_t bytes);  // at most; "" at the end or after 5 s
  bool closed();                           // by the server, within 5 s; what it still sends is dropped
  bool alert_close();                      // TLS: sends close_notify alone
  void half_close();
  void reset();  // closes with RST
  void close();

 private:
  long read(char* data, size_t bytes);
  bool fill();

  int socket_ = -1;
  SSL* ssl_ = nullptr;
  bool connected_ = false;
  std::string buffer_;
};

std::string get(std::string_view target, std::string_view more = "");  // more: header lines with CRLF
std::string post(std::string_view target, std::string_view body, std::string_view more = "");

// A self-signed certificate and its key, written as <folder>/<name>.crt and .key.
TlsFiles make_certificate(const std::string& folder, const std::string& name);

// A sanitizer keeps freed memory back, so that bounds on resident memory mean nothing under it.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

size_t open_files();
size_t resident_bytes();

}  // namespace headwater::test
