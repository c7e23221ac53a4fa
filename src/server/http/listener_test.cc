// What every well-behaved client sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/http_kit.h"

namespace headwater::test {
namespace {

TEST(Http, AnswersOneRequestAfterTheOtherOnOneConnection) {
  LiveServer server;
  Client client(server.port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo?a=1&b", "hello"));
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_EQ(reply.body, "POST /echo a=1&b hello");
    EXPECT_EQ(reply.headers.at("server"), "headwater");
    EXPECT_THAT(reply.headers.at("date"), testing::MatchesRegex("..., .. ... .... ..:..:.. GMT"));
    EXPECT_EQ(reply.headers.count("connection"), 0u);
  }
  EXPECT_EQ(server.connections(), 1u);
}

TEST(Http, StreamsChunksAndKeepsTheConnection) {
  LiveServer server;
  Client client(server.port());
  for (int i = 0; i < 2; ++i) {
    client.send(get("/stream?chunks=5&bytes=7&pause=1"));
    const Reply reply = client.receive();
    EXPECT_EQ(reply.headers.at("transfer-encoding"), "chunked");
    EXPECT_TRUE(reply.complete);
    EXPECT_EQ(reply.body, std::string(35, 'y'));
  }
}

TEST(Http, SendsEachChunkAtOnce) {
  LiveServer server;
  Client client(server.port());
  client.send(get("/stream?chunks=3&bytes=4&pause=100"));
  std::string seen;
  while (seen.find("yyyy") == std::string::npos) seen += client.receive_some(4096);
  EXPECT_EQ(seen.find("yyyy"), seen.rfind("yyyy"));
}

TEST(Http, EndsAStreamToHttp10WithTheConnection) {
  LiveServer server;
  Client client(server.port());
  client.send("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const Reply reply = client.receive();
  EXPECT_EQ(reply.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(reply.headers.count("connection"), 0u);
  EXPECT_EQ(reply.body, std::string(30, 'y'));
}

TEST(Http, KeepsHttp10ConnectionsOnlyOnRequest) {
  LiveServer server;
  Client kept(server.port());
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(kept.receive().headers.at("connection"), "keep-alive");
  }
  Client closed(server.port());
  closed.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(closed.receive().status, 200);
  EXPECT_TRUE(closed.closed());
}

TEST(Http, ClosesAfterTheAnswerWhenAsked) {
  LiveServer server;
  Client client(server.port());
  client.send(get("/echo", "Connection: close\r\n"));
  const Reply reply = client.receive();
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(client.closed());
  client.close();
  EXPECT_TRUE(server.wait_until_empty());
}

TEST(Http, LeavesTheBodyOutForHead) {
  LiveServer server;
  Client client(server.port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive(true).headers.at("content-length"), "12");
  client.send("HEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive(true).status, 200);
  client.send(get("/empty"));
  const Reply empty = client.receive();
  EXPECT_EQ(empty.status, 204);
  EXPECT_EQ(empty.headers.count("content-length"), 0u);
  client.send(get("/echo"));
  EXPECT_EQ(client.receive().body, "GET /echo  ");
}

TEST(Http, AnswersPipelinedRequestsInOrder) {
  LiveServer server;
  Client client(server.port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += i % 5 == 0 ? get("/stream?chunks=2&bytes=3") : post("/echo", std::to_string(i));
  client.send(all);
  for (int i = 0; i < 50; ++i)
    EXPECT_EQ(client.receive().body, i % 5 == 0 ? "yyyyyy" : "POST /echo  " + std::to_string(i));
}

TEST(Http, ReadsChunkedBodiesWithExtensionsAndTrailers) {
  LiveServer server;
  Client client(server.port());
  const std::string request =
      "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
      "5;name=value\r\nhello\r\n1\r\n!\r\n0\r\nHost: other\r\n\r\n";
  client.send(request);
  EXPECT_EQ(client.receive().body, "POST /echo  hello!");
  client.send_slowly(request);
  EXPECT_EQ(client.receive().body, "POST /echo  hello!");
}

TEST(Http, SaysContinueOnlyAfterTheRequestIsAdmitted) {
  LiveServer server;
  Client client(server.port());
  client.send("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 100);
  client.send("ab");
  EXPECT_EQ(client.receive().body, "POST /echo  ab");
  client.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_TRUE(client.closed());
}

TEST(Http, AnswersARefusalWithoutReadingTheBody) {
  LiveServer server;
  Client client(server.port());
  client.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n");
  client.send(std::string(500'000, 'b'));  // the socket is not reset under the answer
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(reply.headers.at("connection"), "close");
  EXPECT_TRUE(client.closed());
  Client without_body(server.port());
  without_body.send(get("/refuse"));
  EXPECT_EQ(without_body.receive().status, 401);
  without_body.send(get("/echo"));
  EXPECT_EQ(without_body.receive().status, 200);
}

TEST(Http, TakesAbsoluteTargetsAndLeavesOddOnesToTheApplication) {
  LiveServer server;
  Client client(server.port());
  const std::pair<const char*, const char*> cases[] = {{"http://here:80/v1/models?x=1", "GET /v1/models x=1 "},
                                                       {"HTTPS://here", "GET /  "},
                                                       {"http://here?x", "GET  x "},
                                                       {"*", "GET *  "},
                                                       {"/a//b/../c%00", "GET /a//b/../c%00  "}};
  for (const auto& [target, expected] : cases) {
    client.send(get(target));
    EXPECT_EQ(client.receive().body, expected) << target;
  }
  client.send("CONNECT here:443 HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive().body, "CONNECT here:443  ");
  client.send("get /echo HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_EQ(client.receive().body, "get /echo  ");
}

TEST(Http, IgnoresEmptyLinesBeforeARequest) {
  LiveServer server;
  Client client(server.port());
  client.send("\r\n\r\n" + post("/echo", "a") + "\r\n" + get("/echo"));
  EXPECT_EQ(client.receive().body, "POST /echo  a");
  EXPECT_EQ(client.receive().body, "GET /echo  ");
}

TEST(Http, SurvivesAnApplicationThatThrowsOrForgetsToAnswer) {
  LiveServer server;
  for (const char* path : {"/throw", "/nothing"}) {
    Client client(server.port());
    client.send(get(path));
    EXPECT_EQ(client.receive().status, 500);
    EXPECT_TRUE(client.closed());
  }
}

TEST(Listener, NamesTheAddressItCannotListenOn) {
  LiveServer server;
  boost::asio::io_context io;
  const auto taken = Listener::open(io, "127.0.0.1", server.port(), {}, {}, server.application);
  ASSERT_FALSE(taken.is_ok());
  EXPECT_THAT(taken.status().message(), testing::HasSubstr(std::to_string(server.port())));
  EXPECT_THAT(taken.status().message(), testing::HasSubstr("choose another port"));
  const auto foreign = Listener::open(io, "192.0.2.1", 0, {}, {}, server.application);
  ASSERT_FALSE(foreign.is_ok());
  EXPECT_THAT(foreign.status().message(), testing::HasSubstr("192.0.2.1"));
}

TEST(Listener, ClosesIdleConnectionsWhenItStopsAndLetsAnswersEnd) {
  LiveServer server;
  Client idle(server.port());
  Client kept(server.port());
  kept.send(get("/echo"));
  kept.receive();
  Client busy(server.port());
  busy.send(get("/stream?chunks=5&bytes=1&pause=20"));
  while (server.application.begun < 2) std::this_thread::yield();
  server.on_thread([&] { server.listener().stop_accepting(); });
  EXPECT_TRUE(idle.closed());
  EXPECT_TRUE(kept.closed());
  EXPECT_EQ(busy.receive().body, "yyyyy");
  EXPECT_TRUE(busy.closed());
  busy.close();
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_FALSE(Client(server.port()).connected());
}

TEST(Listener, DropsEverythingWhenTold) {
  LiveServer server;
  Client hanging(server.port());
  hanging.send(get("/hang"));
  Client half(server.port());
  half.send("GET /half");
  while (server.application.begun < 1) std::this_thread::yield();
  server.on_thread([&] { server.listener().drop_all(); });
  EXPECT_TRUE(hanging.closed());
  EXPECT_TRUE(half.closed());
  EXPECT_TRUE(server.wait_until_empty());
  EXPECT_EQ(server.application.gone, 1);
}

TEST(Listener, LeavesNothingBehindWhenItIsDestroyed) {
  SmallApplication application;
  boost::asio::io_context io;
  {
    auto opened = Listener::open(io, "localhost", 0, {}, {}, application);
    ASSERT_TRUE(opened.is_ok());
    io.poll();
  }
  io.run();  // ends
}

}  // namespace
}  // namespace headwater::test
