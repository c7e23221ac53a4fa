// Clients that are slow, silent, too many, or leave: plain and over TLS.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <random>

#include "support/http_kit.h"

namespace headwater::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::HasSubstr;

class Clients : public testing::TestWithParam<bool> {
 protected:
  bool tls() const { return GetParam(); }
  TlsFiles files() const { return tls() ? make_certificate(testing::TempDir(), "clients") : TlsFiles(); }
};

INSTANTIATE_TEST_SUITE_P(Over, Clients, testing::Values(false, true),
                         [](const auto& over) { return over.param ? "Tls" : "Tcp"; });

milliseconds since(steady_clock::time_point start) {
  return std::chrono::duration_cast<milliseconds>(steady_clock::now() - start);
}

bool wait_for(const std::atomic<int>& value, int expected) {
  for (int i = 0; i < 1000 && value != expected; ++i) std::this_thread::sleep_for(milliseconds(5));
  return value == expected;
}

TEST_P(Clients, AreToldThatTheirHeaderIsLate) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls());
  const auto start = steady_clock::now();
  for (int i = 0; i < 10; ++i) {  // a byte now and then does not help
    client.send("G");
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(client.receive().status, 408);
  EXPECT_LT(since(start), milliseconds(1000));
  EXPECT_TRUE(client.closed());
}

TEST_P(Clients, AreToldThatTheirBodyIsLate) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 10; ++i) {
    client.send("1\r\na\r\n");
    std::this_thread::sleep_for(milliseconds(20));
  }
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, 408);
  EXPECT_THAT(reply.body, HasSubstr("300 ms"));
  EXPECT_TRUE(client.closed());
  EXPECT_EQ(server.application.begun, 0);
}

TEST_P(Clients, WhoSayNothingAreClosed) {
  LiveServer server(quick_limits(), files());
  Client silent(server.port());  // not even a handshake
  Client idle(server.port(), tls());
  idle.send(get("/echo"));
  EXPECT_EQ(idle.receive().status, 200);
  EXPECT_EQ(idle.receive().status, 0);  // between requests: closed without a word
  EXPECT_TRUE(idle.closed());
  EXPECT_EQ(silent.receive().status, tls() ? 0 : 408);
  idle.close();
  silent.close();
  EXPECT_TRUE(server.wait_until_empty());
}

TEST_P(Clients, MayWaitLongForAnAnswer) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls());
  client.send(get("/stream?chunks=2&pause=400"));
  EXPECT_EQ(client.receive().body.size(), 20u);
}

TEST_P(Clients, WhoCloseAreSeenBeforeTheFirstByteOfAnAnswer) {
  LiveServer server(quick_limits(), files());
  for (int way = 0; way < 3; ++way) {
    Client client(server.port(), tls());
    client.send(get("/hang"));
    ASSERT_TRUE(wait_for(server.application.begun, way + 1));
    const auto start = steady_clock::now();
    if (way == 0) client.close();
    if (way == 1) client.reset();
    if (way == 2 && tls()) client.alert_close();
    if (way == 2 && !tls()) client.half_close();
    EXPECT_TRUE(wait_for(server.application.gone, way + 1)) << way;
    EXPECT_LT(since(start), milliseconds(200)) << way;
    EXPECT_TRUE(wait_for(server.application.ended, way + 1)) << way;
  }
  EXPECT_TRUE(server.wait_until_empty());
}

TEST_P(Clients, WhoCloseAreSeenBehindPipelinedRequests) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls());
  client.send(get("/hang") + get("/hang"));
  ASSERT_TRUE(wait_for(server.application.begun, 1));
  client.close();
  EXPECT_TRUE(wait_for(server.application.gone, 1));
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_EQ(server.application.begun, 1);
}

TEST_P(Clients, WhoCloseInMidHeaderOrBodyLeaveNothing) {
  LiveServer server(quick_limits(), files());
  for (const char* part :
       {"", "GE", "GET /echo HTTP/1.1\r\nHo", "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc"}) {
    Client client(server.port(), tls());
    client.send(part);
    client.half_close();
    EXPECT_TRUE(client.closed());
  }
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_EQ(server.application.begun, 0);
}

TEST_P(Clients, WhoPipelineWithoutEndAreHeldBack) {
  Limits limits = quick_limits();
  limits.header_bytes = 4096;
  LiveServer server(limits, files());
  Client client(server.port(), tls());
  client.send(get("/stream?chunks=20&pause=10"));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += get("/echo");
  client.send(many);
  EXPECT_EQ(client.receive().body.size(), 200u);
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(client.receive().status, 200) << i;
}

TEST_P(Clients, WhoStopReadingPauseOnlyThemselvesAndAreDropped) {
  LiveServer server(quick_limits(), files());
  const size_t before = resident_bytes();
  std::vector<Client> slow;
  for (int i = 0; i < 50; ++i) {
    slow.emplace_back(server.port(), tls(), 4096);
    slow.back().send(get("/stream?chunks=100000&bytes=1000"));
  }
  Client reader(server.port(), tls());
  const auto start = steady_clock::now();
  reader.send(get("/stream?chunks=50&pause=5"));
  EXPECT_EQ(reader.receive().body.size(), 500u);
  EXPECT_LT(since(start), milliseconds(1500));
  if (!kSanitized) {
    EXPECT_LT(resident_bytes() - before, 50u * 512 * 1024);
  }
  EXPECT_TRUE(wait_for(server.application.gone, 50));
  EXPECT_TRUE(wait_for(server.application.ended, 51));
}

TEST_P(Clients, WhoReadSlowlyAreNotDropped) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls(), 32768);
  client.send(get("/large?bytes=3000000"));
  size_t received = 0;
  const auto start = steady_clock::now();
  while (received < 3'000'000) {
    const std::string some = client.receive_some(1 << 20);
    if (some.empty()) break;
    received += some.size();
    if (received < 1'200'000) std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_GE(received, 3'000'000u);
  EXPECT_GT(since(start), milliseconds(600));  // longer than the time-out of a write without progress
  EXPECT_EQ(server.application.gone, 0);
}

void vanish(LiveServer& server, bool tls, std::mt19937& random) {
  Client client(server.port(), tls);
  std::string bytes;
  const unsigned kind = random() % 4;
  if (kind == 0) bytes = get("/hang");
  if (kind == 1) bytes = post("/hang", std::string(random() % 50'000, 'b'));
  if (kind == 2) bytes = get("/stream?chunks=1000000&bytes=300&pause=1");
  if (kind == 3) bytes = get("/stream?chunks=1000000&bytes=3000");
  const bool whole = random() % 3 > 0;
  client.send(whole ? bytes : bytes.substr(0, random() % bytes.size()));
  if (random() % 2) std::this_thread::sleep_for(milliseconds(random() % 20));
  if (whole && kind > 1 && random() % 2) client.receive_some(random() % 500);
  if (random() % 3 == 0) client.reset();
}

void expect_all_vanish(bool tls, TlsFiles files, int count, int threads) {
  Limits limits = quick_limits();
  limits.header_timeout = limits.body_timeout = milliseconds(100);
  LiveServer server(limits, std::move(files));
  { Client(server.port(), tls).receive_some(0); }
  ASSERT_TRUE(server.wait_until_empty());
  const size_t files_before = open_files();
  std::vector<std::thread> vanishing;
  for (int i = 0; i < threads; ++i)
    vanishing.emplace_back([&, i] {
      std::mt19937 random(static_cast<unsigned>(i));
      for (int client = 0; client < count / threads; ++client) vanish(server, tls, random);
    });
  for (std::thread& thread : vanishing) thread.join();
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_GT(server.application.begun, count / 4);
  EXPECT_EQ(server.application.ended, server.application.begun);
  EXPECT_EQ(server.application.gone, server.application.begun);  // none of these answers ends by itself
  EXPECT_EQ(open_files(), files_before);
  Client client(server.port(), tls);
  client.send(get("/echo"));
  EXPECT_EQ(client.receive().status, 200);
}

TEST_P(Clients, WhoVanishAtRandomPointsLeaveNothing) {
  expect_all_vanish(tls(), files(), 200, 50);
}

TEST(ManyClients, TwoThousandWhoVanishLeaveNothing) {
  expect_all_vanish(false, {}, 2000, 100);
}

TEST_P(Clients, BeyondTheLimitHear503) {
  Limits limits = quick_limits();
  limits.connections = 3;
  limits.header_timeout = std::chrono::seconds(5);
  LiveServer server(limits, files());
  std::vector<Client> clients;
  const std::string request = get("/echo");
  for (int i = 0; i < 3; ++i) {
    clients.emplace_back(server.port(), tls());
    clients.back().send(request.substr(0, 5));
  }
  Client refused(server.port(), tls());
  refused.send(get("/echo"));
  const Reply reply = refused.receive();
  EXPECT_EQ(reply.status, 503);
  EXPECT_EQ(reply.headers.at("retry-after"), "1");
  EXPECT_TRUE(refused.closed());
  refused.close();
  clients[0].send(request.substr(5));
  EXPECT_EQ(clients[0].receive().status, 200);
  clients.pop_back();
  for (int i = 0; i < 500 && server.connections() > 2; ++i) std::this_thread::sleep_for(milliseconds(5));
  Client admitted(server.port(), tls());
  admitted.send(get("/echo"));
  EXPECT_EQ(admitted.receive().status, 200);
}

TEST_P(Clients, WhoSayNothingMakeRoomForOthers) {
  Limits limits = quick_limits();
  limits.connections = 3;
  limits.header_timeout = limits.idle_timeout = std::chrono::seconds(20);
  LiveServer server(limits, files());
  Client busy(server.port(), tls()), longest(server.port(), tls());
  std::this_thread::sleep_for(milliseconds(100));
  Client idle(server.port(), tls());
  busy.send(get("/hang"));
  std::this_thread::sleep_for(kIdleMin);
  Client late(server.port(), tls());
  late.send(get("/echo"));
  EXPECT_EQ(late.receive().status, 200);
  EXPECT_TRUE(longest.closed());
  idle.send(get("/echo"));
  EXPECT_EQ(idle.receive().status, 200);
  EXPECT_EQ(server.application.gone, 0);
}

TEST_P(Clients, WithLargeBodiesShareABoundThatSmallOnesDoNotFeel) {
  Limits limits = quick_limits();
  limits.body_bytes = 300'000;
  limits.bodies_bytes = 600'000;
  limits.body_timeout = std::chrono::seconds(20);
  LiveServer server(limits, files());
  const std::string head = "POST /large?bytes=10 HTTP/1.1\r\nHost: x\r\nContent-Length: ";
  std::vector<Client> large;
  int refused = 0;
  for (int i = 0; i < 6; ++i) {
    large.emplace_back(server.port(), tls());
    large.back().send(head + "200001\r\n\r\n" + std::string(200'000, 'x'));
    std::this_thread::sleep_for(milliseconds(50));
  }
  Client small(server.port(), tls());
  small.send(head + "1000\r\n\r\n" + std::string(1000, 'x'));
  EXPECT_EQ(small.receive().status, 200);
  for (Client& client : large) {
    client.send("x");
    const Reply reply = client.receive();
    if (reply.status == 503) ++refused;
    EXPECT_EQ(reply.headers.contains("retry-after"), reply.status == 503);
    client.close();
  }
  EXPECT_GE(refused, 2);
  EXPECT_LT(refused, 6);
  EXPECT_TRUE(server.wait_until_empty());
  Client again(server.port(), tls());  // the room has come back
  again.send(head + "200000\r\n\r\n" + std::string(200'000, 'x'));
  EXPECT_EQ(again.receive().status, 200);
}

TEST_P(Clients, WhoDoNotReadLargeAnswersFillThatBoundToo) {
  Limits limits = quick_limits();
  limits.bodies_bytes = 12'000'000;
  limits.write_timeout = std::chrono::seconds(20);
  LiveServer server(limits, files());
  Client slow(server.port(), tls(), 4096);
  slow.send(get("/large?bytes=10000000"));
  for (int i = 0; i < 500 && server.application.begun == 0; ++i) std::this_thread::sleep_for(milliseconds(2));
  Client late(server.port(), tls());
  late.send(get("/large?bytes=10000000"));
  EXPECT_EQ(late.receive().status, 503);
  late.send(get("/large?bytes=50000"));
  EXPECT_EQ(late.receive().body.size(), 50'000u);
  EXPECT_EQ(slow.receive().body.size(), 10'000'000u);
  // The server hears of the end of an answer a little later than who reads it; and who has waited for that long is idle.
  Reply again;
  for (int i = 0; i < 500 && again.status != 200; ++i) {
    Client next(server.port(), tls());
    next.send(get("/large?bytes=10000000"));
    again = next.receive();
  }
  EXPECT_EQ(again.body.size(), 10'000'000u);
}

TEST_P(Clients, WhoCloseBehindMoreThanTheBufferHoldsAreSeen) {
  LiveServer server(quick_limits(), files());
  Client client(server.port(), tls());
  client.send(get("/hang"));
  for (int i = 0; i < 500 && server.application.begun == 0; ++i) std::this_thread::sleep_for(milliseconds(2));
  client.send(std::string(quick_limits().header_bytes + 2000, 'x'));
  client.close();
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_EQ(server.application.gone, 1);
}

TEST(ManyClients, AFloodBeyondTheLimitIsBounded) {
  Limits limits = quick_limits();
  limits.connections = 2;
  LiveServer server(limits);
  std::vector<Client> clients;
  for (int i = 0; i < 300; ++i) clients.emplace_back(server.port());
  EXPECT_LE(server.connections(), 2u + 64u);
}

TEST(ManyClients, RunningOutOfFilesNeitherSpinsNorStopsTheServer) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer opens a pipe to see whether memory can be read, and takes its failure for a finding";
#endif
  LiveServer server;
  Client held(server.port());
  held.send(get("/echo"));
  EXPECT_EQ(held.receive().status, 200);
  const int free_file = ::dup(0);
  ::close(free_file);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit tight{static_cast<rlim_t>(free_file) + 1, before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &tight);
  Client waiting(server.port());  // takes the last file: its other end cannot be accepted
  rusage start{}, end{};
  getrusage(RUSAGE_SELF, &start);
  std::this_thread::sleep_for(milliseconds(250));
  getrusage(RUSAGE_SELF, &end);
  held.send(get("/echo"));
  EXPECT_EQ(held.receive().status, 200);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_LT(end.ru_utime.tv_usec + end.ru_stime.tv_usec - start.ru_utime.tv_usec - start.ru_stime.tv_usec +
                1'000'000 * (end.ru_utime.tv_sec + end.ru_stime.tv_sec - start.ru_utime.tv_sec - start.ru_stime.tv_sec),
            100'000);
  waiting.send(get("/echo"));
  EXPECT_EQ(waiting.receive().status, 200);
}

}  // namespace
}  // namespace headwater::test
