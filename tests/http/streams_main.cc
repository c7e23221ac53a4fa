// test_http_streams: damaged byte streams against a live listener, for a time or a number of streams. Fails when a well-formed
// request is no longer answered exactly, an answer does not begin as HTTP, or a connection, an answer or a file is left behind.
#include <poll.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <mutex>

#include "http/request_grammar.h"
#include "observe/observe.h"
#include "support/http_kit.h"

namespace headwater::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr unsigned kDrivers = 4;
constexpr uint64_t kProbeEvery = 100;  // streams of one driver

struct Run {
  LiveServer& server;
  const uint64_t seed;
  const uint64_t streams_max;
  const steady_clock::time_point end;
  std::atomic<uint64_t> streams = 0;
  std::atomic<uint64_t> probes = 0;
  std::atomic<bool> failed = false;
  std::mutex mutex;
  std::map<int, uint64_t> statuses;  // of each stream's first answer; 0: none
};

bool readable_within(const Client& client, int wait_ms) {
  pollfd file{client.native(), POLLIN, 0};
  return ::poll(&file, 1, wait_ms) == 1;
}

// The status of the first answer, 0 without one, -1 if what came is no HTTP.
int drive(Run& run, std::mt19937& random) {
  const std::string bytes = random_stream(random);
  Client client(run.server.port());
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const size_t piece = random() % 2 ? rest.size() : 1 + random() % rest.size();
    if (!client.send(rest.substr(0, piece))) break;
    rest.remove_prefix(piece);
    if (random() % 8 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
  }
  if (random() % 6 == 0) client.half_close();
  std::string received;
  const int wait_ms = random() % 200 == 0 ? 300 : static_cast<int>(random() % 4);
  while (received.size() < 100'000 && readable_within(client, wait_ms)) {
    const std::string some = client.receive_some(100'000);
    if (some.empty()) break;
    received += some;
  }
  if (random() % 4 == 0) client.reset();
  if (received.empty()) return 0;
  if (received.compare(0, 7, "HTTP/1.") != 0 || received.size() < 12) return -1;
  return std::atoi(received.c_str() + 9);
}

bool answers_exactly(Run& run, std::mt19937& random) {
  Client client(run.server.port());
  const std::string body(random() % 5000, static_cast<char>('a' + random() % 26));
  client.send(post("/echo?x", body) + get("/stream?chunks=3&bytes=5"));
  const Reply echo = client.receive();
  const Reply stream = client.receive();
  return echo.status == 200 && echo.body == "POST /echo x " + body && stream.complete &&
         stream.body == std::string(15, 'y');
}

void drive_many(Run& run, unsigned driver) {
  std::map<int, uint64_t> statuses;
  for (uint64_t own = 0; !run.failed && run.streams < run.streams_max && steady_clock::now() < run.end; ++own) {
    std::seed_seq seeds{run.seed, uint64_t{driver}, own};
    std::mt19937 random(seeds);
    const int status = drive(run, random);
    ++statuses[status];
    ++run.streams;
    bool right = status >= 0;
    if (right && own % kProbeEvery == 0) {
      right = answers_exactly(run, random);
      ++run.probes;
    }
    if (right) continue;
    fmt::print(stderr, "seed {} driver {} stream {}: {}\n", run.seed, driver, own,
               status < 0 ? "the answer is not HTTP" : "a well-formed request is not answered exactly");
    run.failed = true;
  }
  const std::lock_guard lock(run.mutex);
  for (const auto& [status, count] : statuses) run.statuses[status] += count;
}

int run_streams(uint64_t seed, uint64_t seconds, uint64_t streams) {
  Limits limits;
  limits.header_bytes = 8192;
  limits.body_bytes = 65'536;
  limits.headers = 50;
  limits.header_timeout = limits.body_timeout = limits.idle_timeout = limits.write_timeout = milliseconds(200);
  LiveServer server(limits);
  Run run{server, seed, streams, steady_clock::now() + std::chrono::seconds(seconds)};
  std::mt19937 random(1);
  bool right = answers_exactly(run, random) && server.wait_until_empty();
  const size_t files = open_files();
  size_t resident = 0;
  const auto start = steady_clock::now();
  std::vector<std::thread> drivers;
  for (unsigned driver = 0; driver < kDrivers; ++driver)
    drivers.emplace_back([&run, driver] { drive_many(run, driver); });
  while (run.streams < std::min<uint64_t>(streams, 500) && !run.failed && steady_clock::now() < run.end)
    std::this_thread::sleep_for(milliseconds(5));
  resident = resident_bytes();
  for (std::thread& driver : drivers) driver.join();
  const auto took = std::chrono::duration<double>(steady_clock::now() - start);

  fmt::print("{} streams in {:.1f} s, {} probes; resident {} KiB after 500 streams, {} KiB at the end\nfirst answers:",
             run.streams.load(), took.count(), run.probes.load(), resident / 1024, resident_bytes() / 1024);
  for (const auto& [status, count] : run.statuses)
    fmt::print(" {}: {}", status == 0 ? "none" : std::to_string(status), count);
  fmt::print("\n");
  const bool empty = server.wait_until_empty();
  const bool ended = server.application.begun == server.application.ended;
  if (!empty || !ended || open_files() != files)
    fmt::print(stderr, "left behind: {} connections, {} answers, {} files\n", server.connections(),
               server.application.begun - server.application.ended, open_files() - files);
  right = right && !run.failed && empty && ended && open_files() == files;
  return right ? 0 : 1;
}

}  // namespace
}  // namespace headwater::test

int main(int argc, char** argv) {
  uint64_t seed = 1, seconds = 0, streams = 0;
  CLI::App app("Damaged byte streams against a live HTTP listener");
  app.add_option("--seed", seed, "of the streams");
  app.add_option("--seconds", seconds, "stop after this time");
  app.add_option("--streams", streams, "stop after this many streams");
  CLI11_PARSE(app, argc, argv);
  if (seconds == 0 && streams == 0) seconds = 10;
  headwater::observe::set_log_level("off");
  return headwater::test::run_streams(seed, seconds == 0 ? 86'400 : seconds, streams == 0 ? UINT64_MAX : streams);
}
