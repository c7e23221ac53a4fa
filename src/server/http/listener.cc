#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <exception>

#include "observe/observe.h"
#include "server/http/connection.h"
#include "server/http/http.h"
#include "server/http/tls.h"

namespace headwater::server::http {
namespace {

namespace asio = boost::asio;
using asio::awaitable;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kRefused = 64;  // at a time; who comes then is closed without a word
constexpr milliseconds kBackOff{100};

// How late a time-out may be seen: an eighth of the shortest.
milliseconds sweep_interval(const Limits& limits) {
  const milliseconds shortest =
      std::min({limits.header_timeout, limits.body_timeout, limits.idle_timeout, limits.write_timeout});
  return std::clamp(shortest / 8, milliseconds(5), milliseconds(250));
}

// Accepts and sweeps. Shared with its two coroutines, which end after close().
class Door : public std::enable_shared_from_this<Door> {
 public:
  Door(std::shared_ptr<Site> site, tcp::acceptor acceptor)
      : site_(std::move(site)),
        acceptor_(std::move(acceptor)),
        pause_(site_->io),
        sweep_interval_(sweep_interval(site_->limits)) {}

  uint16_t port() const { return port_; }
  const Site& site() const { return *site_; }

  void start() {
    port_ = acceptor_.local_endpoint().port();
    asio::co_spawn(site_->io, accept(this->shared_from_this()), asio::detached);
  }

  void stop_accepting() {
    site_->draining = true;
    error_code ignored;
    acceptor_.close(ignored);
    pause_.cancel();
    for (Connection* connection : site_->live) connection->close_if_idle();
  }

  void drop_all() {
    const std::unordered_set<Connection*> live = site_->live;
    for (Connection* connection : live) connection->drop();
  }

 private:
  awaitable<void> accept(std::shared_ptr<Door> self) {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (!acceptor_.is_open()) break;
      if (!error) {
        admit(std::move(socket));
      } else if (error != asio::error::connection_aborted) {
        // Mostly "too many open files": it passes when connections close, not by asking again at once.
        if (!std::exchange(told_, true))
          observe::logger().warn("http: accepting fails ({}); trying again every {} ms", error.message(),
                                 kBackOff.count());
        pause_.expires_after(kBackOff);
        co_await pause_.async_wait(kTuple);
      }
    }
    self.reset();
  }

  void admit(tcp::socket socket) {
    const bool full = site_->live.size() - site_->refused >= site_->limits.connections && !make_room();
    if (full && site_->refused >= kRefused) return;
    try {
      start_connection(site_, std::move(socket), full);
    } catch (const std::exception& exception) {  // no memory: this client's loss alone
      observe::logger().debug("http: a connection does not begin: {}", exception.what());
    }
    if (site_->live.empty()) return;
    if (!std::exchange(sweeping_, true)) asio::co_spawn(site_->io, sweep(this->shared_from_this()), asio::detached);
  }

  // Closes the connection that has been idle longest. It still counts until its coroutine has seen that.
  bool make_room() {
    const auto longest = std::ranges::min_element(site_->live, {}, &Connection::idle_since);
    if (longest == site_->live.end() || (*longest)->idle_since() > Clock::now() - kIdleMin) return false;
    (*longest)->close_if_idle();
    return true;
  }

  awaitable<void> sweep(std::shared_ptr<Door> self) {
    while (!site_->live.empty()) {
      site_->sweep.expires_after(sweep_interval_);
      co_await site_->sweep.async_wait(kTuple);
      const auto now = Clock::now();
      for (Connection* connection : site_->live) connection->expire(now);
    }
    sweeping_ = false;
    self.reset();
  }

  const std::shared_ptr<Site> site_;
  tcp::acceptor acceptor_;
  asio::steady_timer pause_;
  const milliseconds sweep_interval_;
  uint16_t port_ = 0;
  bool sweeping_ = false;
  bool told_ = false;
};

class DoorListener final : public Listener {
 public:
  explicit DoorListener(std::shared_ptr<Door> door) : door_(std::move(door)) {}
  ~DoorListener() override {
    door_->stop_accepting();
    door_->drop_all();
  }
  uint16_t port() const override { return door_->port(); }
  size_t connections() const override { return door_->site().live.size(); }
  void stop_accepting() override { door_->stop_accepting(); }
  void drop_all() override { door_->drop_all(); }

 private:
  const std::shared_ptr<Door> door_;
};

Result<tcp::acceptor> listen(asio::io_context& io, const std::string& host, uint16_t port) {
  tcp::resolver resolver(io);
  error_code failed;
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, failed);
  if (failed || found.empty())
    return error(ErrorCode::kInvalidArgument,
                 "the host '{}' has no address ({}): give a numeric one, such as 127.0.0.1", host, failed.message());
  tcp::endpoint endpoint = found.begin()->endpoint();
  for (const auto& entry : found)
    if (entry.endpoint().address().is_v4() && !endpoint.address().is_v4()) endpoint = entry.endpoint();

  tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol(), failed);
  if (!failed) acceptor.set_option(tcp::acceptor::reuse_address(true), failed);
  if (!failed) acceptor.bind(endpoint, failed);
  if (!failed) acceptor.listen(asio::socket_base::max_listen_connections, failed);
  if (!failed) return acceptor;
  const char* remedy = failed == asio::error::address_in_use
                           ? "another program listens there: choose another port, or 0 "
                             "for any free one"
                       : failed == asio::error::access_denied ? "choose a port of 1024 or more"
                                                              : "choose an address of this machine";
  return error(ErrorCode::kInvalidArgument, "cannot listen on {} port {} ({}): {}", host, port, failed.message(),
               remedy);
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(asio::io_context& io, const std::string& host, uint16_t port,
                                                 const Limits& limits, const TlsFiles& tls, Application& application) {
  std::optional<asio::ssl::context> context;
  if (!tls.certificate.empty() || !tls.key.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(asio::ssl::context loaded, load_tls(tls));
    context.emplace(std::move(loaded));
  }
  HEADWATER_ASSIGN_OR_RETURN(tcp::acceptor acceptor, listen(io, host, port));
  std::shared_ptr<Site> site(
      new Site{io, limits, application, std::move(context), asio::steady_timer(io), {}, 0, 0, false});
  auto door = std::make_shared<Door>(std::move(site), std::move(acceptor));
  door->start();
  return std::unique_ptr<Listener>(std::make_unique<DoorListener>(std::move(door)));
}

}  // namespace headwater::server::http
