#include "server/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/chunk_encode.hpp>
#include <boost/beast/http/write.hpp>
#include <exception>

#include "observe/observe.h"
#include "server/http/request.h"
#include "server/http/response.h"

namespace headwater::server::http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace wire = boost::beast::http;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using TlsStream = asio::ssl::stream<tcp::socket>;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr char kTlsHandshake = 0x16;       // the first byte of a TLS client
constexpr size_t kReadBytes = 16u << 10;   // of one read
constexpr size_t kLingerBytes = 1u << 20;  // dropped unread before a connection is closed
constexpr std::chrono::milliseconds kLingerTime{2'000};
constexpr int kUnsentBytes = 128 << 10;  // the kernel holds for a client that does not read

// Whether the client has gone, though nobody reads what it sent before.
bool hung_up(int socket) {
  pollfd asked{.fd = socket, .events = POLLRDHUP, .revents = 0};
  return ::poll(&asked, 1, 0) == 1;
}

// Stream: tcp::socket or TlsStream.
//
// Reading: at most one read is in progress, into buffer_ (at most header_bytes). It is begun when a request needs bytes and,
// while a request is answered, to see the client leave; whoever needs bytes next waits for that same read (fill()). Behind a
// buffer full of pipelined requests, expire() looks whether the client is still there.
// Time: deadline_ is of the operation in progress. The listener's sweep calls expire(), which cancels it.
template <class Stream>
class StreamConnection final : public Connection,
                               public Exchange,
                               public std::enable_shared_from_this<StreamConnection<Stream>> {
 public:
  StreamConnection(std::shared_ptr<Site> site, Stream stream, bool refused)
      : Connection(std::move(site), refused),
        limits_(site_->limits),
        stream_(std::move(stream)),
        buffer_(std::max<size_t>(limits_.header_bytes, 1)),
        read_done_(site_->io, Clock::time_point::max()) {}

  awaitable<void> run(std::shared_ptr<StreamConnection> self) {
    try {
      co_await serve();
    } catch (const std::exception& exception) {
      observe::logger().debug("http: a connection ends: {}", exception.what());
    }
    leave();
    self.reset();
  }

  // Connection
  void expire(TimePoint now) override {
    if (watching_ && !reading_ && hung_up(socket().native_handle())) return leave();
    if (now < deadline_) return;
    expired_ = true;
    error_code ignored;
    socket().cancel(ignored);
  }
  TimePoint idle_since() const override { return idle_since_; }
  void close_if_idle() override {
    if (idle_since_ != TimePoint::max()) leave();
  }
  void drop() override { leave(); }

  // Exchange
  const RequestHead& head() const override { return *request_; }
  std::string take_body() override { return request_->take_body(); }
  void release_body() override { request_->give_back_share(); }
  bool has_begun() const override { return answer_ != Answer::kNone; }
  bool client_gone() const override { return gone_; }
  void on_client_gone(std::function<void()> callback) override {
    if (gone_ && callback) return callback();
    on_gone_ = std::move(callback);
  }
  awaitable<bool> respond(Response response) override;
  awaitable<bool> begin_stream(Response head) override;
  awaitable<bool> write(std::string_view bytes) override;
  awaitable<bool> end_stream(std::string_view last) override;

 private:
  enum class Answer : uint8_t { kNone, kStream, kDone };

  awaitable<void> serve();
  awaitable<bool> handshake();
  awaitable<void> refuse_plain();
  awaitable<bool> serve_request();  // true: the next one may follow
  awaitable<bool> wait_for_request();
  awaitable<bool> read_header();
  awaitable<bool> read_body();
  awaitable<bool> read_until(bool whole);
  awaitable<bool> answer();
  awaitable<bool> fail(unsigned status, std::string message);
  awaitable<void> linger();

  void begin_read();
  void on_read(error_code error, size_t bytes);
  awaitable<bool> fill();
  template <class Buffers>
  awaitable<bool> write_all(Buffers buffers);
  template <class Message>
  awaitable<bool> write_message(Message message);

  tcp::socket& socket() {
    if constexpr (std::is_same_v<Stream, TlsStream>)
      return stream_.next_layer();
    else
      return stream_;
  }
  bool to_head() const { return request_ && request_->method() == "HEAD"; }
  void allow(std::chrono::milliseconds time) {
    expired_ = false;
    deadline_ = Clock::now() + time;
  }
  void allow_any_time() {
    expired_ = false;
    deadline_ = TimePoint::max();
  }
  void leave();  // the client is gone, or is to be

  const Limits& limits_;
  Stream stream_;
  beast::flat_buffer buffer_;
  asio::steady_timer read_done_;  // never expires: cancelled when a read is done
  error_code read_error_;
  bool reading_ = false;
  bool watching_ = false;  // a request is being answered

  TimePoint deadline_ = TimePoint::max();
  bool expired_ = false;
  bool secure_ = false;  // the TLS handshake is done
  TimePoint idle_since_ = TimePoint::max();
  bool first_ = true;  // no request was answered yet
  bool gone_ = false;
  std::function<void()> on_gone_;

  std::optional<Request> request_;
  Framing framing_;
  Answer answer_ = Answer::kNone;
};

template <class Stream>
awaitable<void> StreamConnection<Stream>::serve() {
  const bool ready = co_await handshake();
  if (!ready) co_return;
  if (refused_) {
    std::string message = fmt::format("All {} connections are in use. Try again later.", limits_.connections);
    co_await fail(503, std::move(message));
  } else {
    bool next = true;
    while (next) {
      next = co_await serve_request();
      if (site_->draining) next = false;
    }
  }
  co_await linger();
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::handshake() {
  allow(limits_.header_timeout);
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    auto [waited] = co_await socket().async_wait(tcp::socket::wait_read, kTuple);
    if (waited) co_return false;
    char first = 0;
    if (::recv(socket().native_handle(), &first, 1, MSG_PEEK) == 1 && first != kTlsHandshake) {
      co_await refuse_plain();
      co_return false;
    }
    auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kTuple);
    if (error) observe::logger().debug("http: TLS handshake: {}", error.message());
    secure_ = !error;
    co_return secure_;
  }
  co_return true;
}

template <class Stream>
awaitable<void> StreamConnection<Stream>::refuse_plain() {
  std::string text = "This port speaks TLS. Use https:// in the address.";
  const FullMessage message = full_message(site_->application.failure(400, std::move(text)), Framing{});
  co_await wire::async_write(socket(), message, kTuple);
  co_await linger();
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::serve_request() {
  request_.emplace(limits_, site_->bodies_bytes);
  framing_ = Framing{};
  answer_ = Answer::kNone;
  bool ready = co_await wait_for_request();
  if (ready) ready = co_await read_header();
  if (!ready) co_return false;

  framing_ = Framing{request_->version(), request_->keep_alive()};
  std::optional<Response> refusal = site_->application.admit(*request_);
  if (refusal) {
    if (!request_->is_done()) framing_.keep_alive = false;
    const bool sent = co_await respond(std::move(*refusal));
    first_ = false;
    co_return sent&& framing_.keep_alive;
  }
  if (!request_->is_done()) ready = co_await read_body();
  if (!ready) co_return false;
  const bool next = co_await answer();
  first_ = false;
  co_return next;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::wait_for_request() {
  if (!first_) allow(limits_.idle_timeout);  // the first one's time runs since accept
  for (;;) {
    // An empty line or two may stand before a request (RFC 9112, 2.2).
    for (int i = 0; i < 4 && buffer_.size() > 0; ++i) {
      const char front = *static_cast<const char*>(buffer_.cdata().data());
      if (front != '\r' && front != '\n') break;
      buffer_.consume(1);
    }
    if (buffer_.size() > 0) break;
    if (site_->draining) co_return false;
    idle_since_ = Clock::now();
    const bool filled = co_await fill();
    idle_since_ = TimePoint::max();
    if (filled) continue;
    if (!expired_) leave();
    if (first_ && !gone_) {
      std::string message = "No request arrived in time. Connect when there is one to send.";
      co_await fail(408, std::move(message));
    }
    co_return false;
  }
  if (!first_) allow(limits_.header_timeout);
  co_return true;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::read_header() {
  const bool read = co_await read_until(false);
  if (!read && expired_) {
    std::string message = fmt::format("The request's header did not arrive within {} ms. Send it faster.",
                                      limits_.header_timeout.count());
    co_await fail(408, std::move(message));
  }
  co_return read;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::read_body() {
  allow(limits_.body_timeout);
  if (request_->expects_continue() && buffer_.size() == 0) {
    HeadMessage go_on(wire::status::continue_, 11);
    const bool sent = co_await write_message(std::move(go_on));
    if (!sent) co_return false;
    allow(limits_.body_timeout);
  }
  const bool read = co_await read_until(true);
  if (!read && expired_) {
    std::string message =
        fmt::format("The request's body did not arrive within {} ms. Send it faster.", limits_.body_timeout.count());
    co_await fail(408, std::move(message));
  }
  co_return read;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::read_until(bool whole) {
  for (;;) {
    if (buffer_.size() > 0) {
      const auto bytes = buffer_.cdata();
      const size_t used = request_->parse({static_cast<const char*>(bytes.data()), bytes.size()});
      buffer_.consume(used);
      if (!request_->failure() && (whole ? request_->is_done() : request_->is_header_done())) co_return true;
      if (!request_->failure() && buffer_.size() == buffer_.max_size()) request_->fail_oversized();
      if (request_->failure()) {
        std::string message = request_->failure()->message;
        co_await fail(request_->failure()->status, std::move(message));
        co_return false;
      }
      if (used > 0 && buffer_.size() > 0) continue;
    }
    const bool filled = co_await fill();
    if (filled) continue;
    if (!expired_) leave();
    co_return false;
  }
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::answer() {
  allow_any_time();
  watching_ = true;
  begin_read();
  bool failed = false;
  try {
    co_await site_->application.answer(*this);
  } catch (const std::exception& exception) {
    observe::logger().error("http: an answer ended by an exception: {}", exception.what());
    failed = true;
  }
  watching_ = false;
  on_gone_ = nullptr;
  if (answer_ == Answer::kNone && !gone_) {
    if (!failed) observe::logger().error("http: a request was left without an answer");
    std::string message = "The server failed to answer.";
    co_await fail(500, std::move(message));
  }
  co_return !gone_ && framing_.keep_alive && answer_ == Answer::kDone;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::fail(unsigned status, std::string message) {
  framing_.keep_alive = false;
  Response response = site_->application.failure(status, std::move(message));
  const bool sent = co_await respond(std::move(response));
  co_return sent;
}

// The last answer must arrive: a socket closed with bytes unread is reset, and the reset overtakes the answer.
template <class Stream>
awaitable<void> StreamConnection<Stream>::linger() {
  if (gone_) co_return;
  error_code ignored;
  socket().cancel(ignored);
  allow(kLingerTime);
  while (reading_) co_await read_done_.async_wait(kTuple);
  if constexpr (std::is_same_v<Stream, TlsStream>) {
    if (secure_) co_await stream_.async_shutdown(kTuple);
  }
  socket().shutdown(tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  for (size_t dropped = 0; dropped < kLingerBytes && !expired_ && !gone_;) {
    const auto space = buffer_.prepare(std::min(kReadBytes, buffer_.max_size()));
    auto [error, bytes] = co_await socket().async_read_some(space, kTuple);
    if (error) break;
    dropped += bytes;
  }
}

template <class Stream>
void StreamConnection<Stream>::begin_read() {
  if (reading_ || gone_) return;
  const size_t space = std::min(kReadBytes, buffer_.max_size() - buffer_.size());
  if (space == 0) return;
  reading_ = true;
  read_error_ = {};
  stream_.async_read_some(buffer_.prepare(space), [self = this->shared_from_this()](error_code error, size_t bytes) {
    self->on_read(error, bytes);
  });
}

template <class Stream>
void StreamConnection<Stream>::on_read(error_code error, size_t bytes) {
  reading_ = false;
  read_error_ = error;
  buffer_.commit(bytes);
  read_done_.cancel();
  if (!watching_) return;
  // A write that ran out of time has its read cancelled too; what follows is the write's to say.
  if (error && error != asio::error::operation_aborted) return leave();
  begin_read();
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::fill() {
  begin_read();
  while (reading_) co_await read_done_.async_wait(kTuple);
  co_return !read_error_ && !gone_;
}

template <class Stream>
template <class Buffers>
awaitable<bool> StreamConnection<Stream>::write_all(Buffers buffers) {
  beast::buffers_suffix<Buffers> rest(buffers);
  while (!gone_ && beast::buffer_bytes(rest) > 0) {
    allow(limits_.write_timeout);
    auto [error, bytes] = co_await stream_.async_write_some(rest, kTuple);
    if (error) leave();
    rest.consume(bytes);
  }
  allow_any_time();
  co_return !gone_;
}

template <class Stream>
template <class Message>
awaitable<bool> StreamConnection<Stream>::write_message(Message message) {
  wire::response_serializer<typename Message::body_type> serializer(message);
  constexpr bool kHeadOnly = std::is_same_v<Message, HeadMessage>;
  serializer.split(kHeadOnly);
  while (!gone_ && !(kHeadOnly ? serializer.is_header_done() : serializer.is_done())) {
    allow(limits_.write_timeout);
    auto [error, bytes] = co_await wire::async_write_some(stream_, serializer, kTuple);
    if (error) leave();
  }
  allow_any_time();
  co_return !gone_;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::respond(Response response) {
  check(answer_ == Answer::kNone, "a request is answered once");
  if (gone_) co_return false;
  if (site_->draining) framing_.keep_alive = false;
  answer_ = Answer::kDone;
  if (request_) request_->give_back_share();
  BodyShare share(limits_, site_->bodies_bytes);  // while it is written: a client may take its time
  if (!share.fits(response.body.size())) {
    response = site_->application.failure(
        503, "Requests and answers fill all the memory there is for large ones. Try again later.");
  }
  share.take(response.body.size());
  bool sent = false;
  if (to_head() || !has_body(response.status)) {
    HeadMessage message = head_message(response, framing_);
    sent = co_await write_message(std::move(message));
  } else {
    FullMessage message = full_message(std::move(response), framing_);
    sent = co_await write_message(std::move(message));
  }
  co_return sent;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::begin_stream(Response head) {
  check(answer_ == Answer::kNone, "a request is answered once");
  if (gone_) co_return false;
  if (site_->draining || framing_.version < 11) framing_.keep_alive = false;
  answer_ = Answer::kStream;
  HeadMessage message = stream_message(head, framing_);
  const bool sent = co_await write_message(std::move(message));
  co_return sent;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::write(std::string_view bytes) {
  check(answer_ == Answer::kStream && !bytes.empty(), "write() of no bytes, or outside a stream");
  if (gone_) co_return false;
  if (to_head()) co_return true;
  bool sent = false;
  const asio::const_buffer buffer(bytes.data(), bytes.size());
  if (framing_.version >= 11)
    sent = co_await write_all(wire::make_chunk(buffer));
  else
    sent = co_await write_all(buffer);
  co_return sent;
}

template <class Stream>
awaitable<bool> StreamConnection<Stream>::end_stream(std::string_view last) {
  check(answer_ == Answer::kStream, "end_stream() outside a stream");
  if (!last.empty() && (to_head() || framing_.version < 11)) {
    const bool sent = co_await write(last);
    if (!sent) co_return false;
  }
  answer_ = Answer::kDone;
  if (gone_) co_return false;
  if (to_head() || framing_.version < 11) co_return true;
  bool sent = false;
  const asio::const_buffer buffer(last.data(), last.size());
  if (last.empty())
    sent = co_await write_all(wire::make_chunk_last());
  else
    sent = co_await write_all(boost::beast::buffers_cat(wire::make_chunk(buffer), wire::make_chunk_last()));
  co_return sent;
}

template <class Stream>
void StreamConnection<Stream>::leave() {
  if (gone_) return;
  gone_ = true;
  idle_since_ = TimePoint::max();
  error_code ignored;
  socket().close(ignored);
  const auto callback = std::exchange(on_gone_, nullptr);
  if (callback) callback();
}

template <class Stream>
void start(std::shared_ptr<Site> site, Stream stream, bool refused) {
  asio::io_context& io = site->io;
  auto connection = std::make_shared<StreamConnection<Stream>>(std::move(site), std::move(stream), refused);
  asio::co_spawn(io, connection->run(connection), asio::detached);
}

}  // namespace

Connection::Connection(std::shared_ptr<Site> site, bool refused) : site_(std::move(site)), refused_(refused) {
  site_->live.insert(this);
  site_->refused += refused_ ? 1 : 0;
}

Connection::~Connection() {
  site_->live.erase(this);
  site_->refused -= refused_ ? 1 : 0;
  if (site_->live.empty()) site_->sweep.cancel();
}

void start_connection(std::shared_ptr<Site> site, tcp::socket socket, bool refused) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  socket.set_option(asio::detail::socket_option::integer<IPPROTO_TCP, TCP_NOTSENT_LOWAT>(kUnsentBytes), ignored);
  if (site->tls) {
    TlsStream stream(std::move(socket), *site->tls);
    start(std::move(site), std::move(stream), refused);
  } else {
    start(std::move(site), std::move(socket), refused);
  }
}

}  // namespace headwater::server::http
