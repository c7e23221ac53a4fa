#include "support/http_kit.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <stdexcept>

namespace headwater::test {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using std::chrono::milliseconds;

size_t number(std::string_view query, std::string_view name, size_t otherwise) {
  const size_t at = query.find(std::string(name) + "=");
  return at == std::string_view::npos
             ? otherwise
             : std::min<size_t>(std::stoul(std::string(query.substr(at + name.size() + 1))), 10'000'000);
}

awaitable<void> pause(milliseconds time) {
  const auto executor = co_await asio::this_coro::executor;
  asio::steady_timer timer(executor, time);
  co_await timer.async_wait(asio::use_awaitable);
}

struct Ended {  // also by an exception
  std::atomic<int>& count;
  ~Ended() { ++count; }
};

// OpenSSL writes for the clients without MSG_NOSIGNAL; the server must do without the signal's being blocked.
void signal_on_broken_pipe(bool on) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGPIPE);
  pthread_sigmask(on ? SIG_UNBLOCK : SIG_BLOCK, &signals, nullptr);
}

}  // namespace

std::optional<Response> SmallApplication::admit(const RequestHead& head) {
  ++admitted;
  if (head.path() != "/refuse") return std::nullopt;
  Response response;
  response.status = 401;
  response.body = "no";
  return response;
}

awaitable<void> SmallApplication::answer(Exchange& exchange) {
  ++begun;
  const Ended at_return{ended};
  const std::string path(exchange.head().path());
  exchange.on_client_gone([this] { ++gone; });
  Response response;
  if (path == "/stream") {
    co_await stream(exchange);
  } else if (path == "/hang") {
    co_await hang(exchange);
  } else if (path == "/throw") {
    throw std::runtime_error("thrown by the application");
  } else if (path != "/nothing") {
    response.content_type = "text/plain";
    if (path == "/empty") {
      response.status = 204;
    } else if (path == "/large") {
      response.body.assign(number(exchange.head().query(), "bytes", 1), 'x');
    } else {
      const RequestHead& head = exchange.head();
      response.body = fmt::format("{} {} {} {}", head.method(), head.path(), head.query(), exchange.take_body());
    }
    co_await exchange.respond(std::move(response));
  }
}

awaitable<void> SmallApplication::stream(Exchange& exchange) {
  const std::string query(exchange.head().query());
  const std::string text(number(query, "bytes", 10), 'y');
  const milliseconds between(number(query, "pause", 0));
  Response head;
  head.content_type = "text/event-stream";
  bool here = co_await exchange.begin_stream(std::move(head));
  for (size_t chunk = number(query, "chunks", 3); here && chunk > 0; --chunk) {
    const auto start = std::chrono::steady_clock::now();
    here = co_await exchange.write(text);
    write_ns += (std::chrono::steady_clock::now() - start).count();
    ++writes;
    if (between.count() > 0) co_await pause(between);
  }
  if (here) co_await exchange.end_stream();
}

awaitable<void> SmallApplication::hang(Exchange& exchange) {
  while (!exchange.client_gone()) co_await pause(milliseconds(5));
}

Response SmallApplication::failure(unsigned status, std::string message) {
  Response response;
  response.status = status;
  response.content_type = "text/plain";
  response.body = std::move(message);
  if (status == 503) response.headers.emplace_back("Retry-After", "1");
  return response;
}

Limits quick_limits() {
  Limits limits;
  limits.header_timeout = milliseconds(300);
  limits.body_timeout = milliseconds(300);
  limits.idle_timeout = milliseconds(300);
  limits.write_timeout = milliseconds(300);
  return limits;
}

LiveServer::LiveServer(Limits limits, TlsFiles tls) : work_(io_.get_executor()) {
  auto opened = Listener::open(io_, "127.0.0.1", 0, limits, tls, application);
  check(opened.is_ok(), opened.status().message().c_str());
  listener_ = std::move(opened).value();
  port_ = listener_->port();
  thread_ = std::thread([this] {
    signal_on_broken_pipe(true);
    io_.run();
  });
}

LiveServer::~LiveServer() {
  on_thread([this] {
    listener_->stop_accepting();
    listener_->drop_all();
  });
  work_.reset();
  thread_.join();
  check(listener_->connections() == 0, "a connection outlived drop_all()");
}

void LiveServer::on_thread(std::function<void()> call) {
  std::promise<void> done;
  asio::post(io_, [&] {
    call();
    done.set_value();
  });
  done.get_future().wait();
}

size_t LiveServer::connections() {
  size_t count = 0;
  on_thread([&] { count = listener_->connections(); });
  return count;
}

bool LiveServer::wait_until_empty(int seconds) {
  for (int i = 0; i < seconds * 100; ++i) {
    if (connections() == 0) return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

Client::Client(uint16_t port, bool tls, int receive_buffer) {
  signal_on_broken_pipe(false);
  socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
  check(socket_ >= 0, "no socket");
  const timeval five_seconds{5, 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &five_seconds, sizeof(five_seconds));
  const int on = 1;
  setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if (receive_buffer > 0) setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof(receive_buffer));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connected_ = ::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  if (!tls || !connected_) return;
  static SSL_CTX* const context = SSL_CTX_new(TLS_client_method());
  ssl_ = SSL_new(context);
  SSL_set_fd(ssl_, socket_);
  connected_ = SSL_connect(ssl_) == 1;
}

Client::Client(Client&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      ssl_(std::exchange(other.ssl_, nullptr)),
      connected_(other.connected_),
      buffer_(std::move(other.buffer_)) {}

Client::~Client() {
  close();
}

void Client::close() {
  if (ssl_) SSL_free(std::exchange(ssl_, nullptr));
  if (socket_ >= 0) ::close(std::exchange(socket_, -1));
}

bool Client::alert_close() {
  return SSL_shutdown(ssl_) >= 0;
}

void Client::half_close() {
  ::shutdown(socket_, SHUT_WR);
}

void Client::reset() {
  const linger at_once{1, 0};
  setsockopt(socket_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  close();
}

bool Client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const long sent = ssl_ ? SSL_write(ssl_, bytes.data(), static_cast<int>(bytes.size()))
                           : ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

void Client::send_slowly(std::string_view bytes) {
  for (const char byte : bytes) send({&byte, 1});
}

long Client::read(char* data, size_t bytes) {
  return ssl_ ? SSL_read(ssl_, data, static_cast<int>(bytes)) : ::recv(socket_, data, bytes, 0);
}

bool Client::fill() {
  char bytes[16384];
  const long count = read(bytes, sizeof(bytes));
  if (count > 0) buffer_.append(bytes, static_cast<size_t>(count));
  return count > 0;
}

std::string Client::receive_some(size_t bytes) {
  if (buffer_.empty()) fill();
  const std::string some = buffer_.substr(0, bytes);
  buffer_.erase(0, some.size());
  return some;
}

bool Client::closed() {
  char bytes[4096];
  long count = 0;
  while ((count = read(bytes, sizeof(bytes))) > 0) {
  }
  return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

Reply Client::receive(bool to_head) {
  Reply reply;
  size_t end = 0;
  while ((end = buffer_.find("\r\n\r\n")) == std::string::npos)
    if (!fill()) return reply;
  const std::string head = buffer_.substr(0, end + 2);
  buffer_.erase(0, end + 4);
  reply.status = std::stoi(head.substr(9, 3));
  for (size_t line = head.find("\r\n") + 2; line < head.size();) {
    const size_t stop = head.find("\r\n", line);
    const size_t colon = head.find(": ", line);
    std::string name = head.substr(line, colon - line);
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char letter) { return std::tolower(letter); });
    reply.headers[name] = head.substr(colon + 2, stop - colon - 2);
    line = stop + 2;
  }
  if (to_head || reply.status == 204 || reply.status == 100) {
    reply.complete = true;
  } else if (reply.headers.count("content-length")) {
    const size_t length = std::stoul(reply.headers["content-length"]);
    while (buffer_.size() < length && fill()) {
    }
    reply.complete = buffer_.size() >= length;
    reply.body = buffer_.substr(0, length);
    buffer_.erase(0, reply.body.size());
  } else if (reply.headers.count("transfer-encoding")) {
    for (;;) {
      while ((end = buffer_.find("\r\n")) == std::string::npos)
        if (!fill()) return reply;
      const size_t length = std::stoul(buffer_.substr(0, end), nullptr, 16);
      while (buffer_.size() < end + 2 + length + 2)
        if (!fill()) return reply;
      reply.body += buffer_.substr(end + 2, length);
      buffer_.erase(0, end + 2 + length + 2);
      if (length == 0) break;
    }
    reply.complete = true;
  } else {
    while (fill()) {
    }
    reply.body = std::exchange(buffer_, "");
    reply.complete = true;
  }
  return reply;
}

std::string get(std::string_view target, std::string_view more) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: here\r\n{}\r\n", target, more);
}

std::string post(std::string_view target, std::string_view body, std::string_view more) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: here\r\nContent-Length: {}\r\n{}\r\n{}", target, body.size(), more,
                     body);
}

TlsFiles make_certificate(const std::string& folder, const std::string& name) {
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* certificate = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(certificate), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate), 0);
  X509_gmtime_adj(X509_getm_notAfter(certificate), 3600);
  X509_set_pubkey(certificate, key);
  X509_NAME* subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>("localhost"), -1, -1,
                             0);
  X509_set_issuer_name(certificate, subject);
  check(X509_sign(certificate, key, EVP_sha256()) != 0, "the certificate was not signed");
  TlsFiles files{folder + "/" + name + ".crt", folder + "/" + name + ".key"};
  FILE* file = std::fopen(files.certificate.c_str(), "w");
  check(file && PEM_write_X509(file, certificate) == 1, "the certificate was not written");
  std::fclose(file);
  file = std::fopen(files.key.c_str(), "w");
  check(file && PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr) == 1, "the key was not written");
  std::fclose(file);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return files;
}

size_t open_files() {
  const auto files = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

size_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace headwater::test
