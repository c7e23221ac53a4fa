// Bytes that are not a proper request: each gets a clear status or a clean close, and disturbs nobody else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/http_kit.h"

namespace headwater::test {
namespace {

using testing::HasSubstr;

const std::string kChunked = "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";

struct Case {
  const char* name;
  std::string bytes;
  int status;
};

std::string with(const std::string& fields, const std::string& body = "hello") {
  return "POST /echo HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n" + body;
}

void expect_refused(const Case& hostile) {
  LiveServer server;
  Client other(server.port());
  other.send(get("/stream?chunks=4&pause=2"));
  Client client(server.port());
  client.send(hostile.bytes);
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, hostile.status) << hostile.name << ": " << reply.body;
  EXPECT_TRUE(reply.complete) << hostile.name;
  EXPECT_EQ(reply.headers.count("connection"), 1u) << hostile.name;
  EXPECT_TRUE(client.closed()) << hostile.name;
  EXPECT_EQ(other.receive().body.size(), 40u) << hostile.name;
  EXPECT_EQ(server.application.begun, 1) << hostile.name;  // the other's
}

TEST(HostileBytes, RequestsThatTwoServersWouldReadDifferentlyAreRefused) {
  const Case cases[] = {
      {"two equal lengths", with("Content-Length: 5\r\nContent-Length: 5\r\n"), 400},
      {"two lengths", with("Content-Length: 5\r\nContent-Length: 6\r\n"), 400},
      {"a list of lengths", with("Content-Length: 5, 5\r\n"), 400},
      {"length and chunked", with("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400},
      {"chunked and length", with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), 400},
      {"chunked twice", with("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {"chunked not last", with("Transfer-Encoding: chunked, identity\r\n"), 400},
      {"another coding", with("Transfer-Encoding: gzip\r\n"), 400},
      {"almost chunked", with("Transfer-Encoding: xchunked\r\n"), 400},
      {"chunked in 1.0", "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400},
      {"space before the colon", with("Transfer-Encoding : chunked\r\n"), 400},
      {"folded coding", with("Transfer-Encoding:\r\n gzip\r\n"), 400},
      {"negative length", with("Content-Length: -1\r\n"), 400},
      {"signed length", with("Content-Length: +5\r\n"), 400},
      {"hexadecimal length", with("Content-Length: 0x5\r\n"), 400},
      {"empty length", with("Content-Length:\r\n"), 400},
      {"huge length", with("Content-Length: 99999999999999999999999\r\n"), 400},
      {"two hosts", with("Host: b\r\nContent-Length: 5\r\n"), 400},
      {"no host", "GET /echo HTTP/1.1\r\n\r\n", 400},
      {"bare line feeds", "GET /echo HTTP/1.1\nHost: a\n\n", 400},
      {"a return inside", with("A: b\rContent-Length: 5\r\n"), 400},
  };
  for (const Case& hostile : cases) expect_refused(hostile);
}

TEST(HostileBytes, BadChunksAreRefused) {
  const Case cases[] = {
      {"not a number", kChunked + "zz\r\nhello\r\n", 400},
      {"negative", kChunked + "-5\r\nhello\r\n", 400},
      {"prefixed", kChunked + "0x5\r\nhello\r\n0\r\n\r\n", 400},
      {"no number", kChunked + "\r\nhello\r\n", 400},
      {"beyond 64 bits", kChunked + "FFFFFFFFFFFFFFFFF\r\nhello\r\n", 400},
      {"64 bits", kChunked + "FFFFFFFFFFFFFFFF\r\nhello\r\n", 413},
      {"smaller than the data", kChunked + "2\r\nhello\r\n0\r\n\r\n", 400},
      {"an endless extension", kChunked + "5;" + std::string(100'000, 'a'), 400},
      {"endless trailers", kChunked + "0\r\nA: " + std::string(100'000, 'a'), 400},
  };
  for (const Case& hostile : cases) expect_refused(hostile);
}

TEST(HostileBytes, WhatIsNotHttpIsToldSo) {
  using namespace std::string_literals;
  const Case cases[] = {
      {"NUL in a value", with("A: b\0c\r\nContent-Length: 5\r\n"s), 400},
      {"NUL in a name", with("A\0: b\r\nContent-Length: 5\r\n"s), 400},
      {"NUL in the target", "GET /ec\0ho HTTP/1.1\r\nHost: a\r\n\r\n"s, 400},
      {"a space in the target", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"no target", "GET HTTP/1.1\r\nHost: a\r\n\r\n", 400},
      {"no version", "GET /echo\r\n\r\n", 400},
      {"HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400},
      {"HTTP/1.2", "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 400},
      {"no colon", with("novalue\r\n"), 400},
      {"noise", "\x80\x81\xff\xfe\x01\x02\r\n\r\n", 400},
  };
  for (const Case& hostile : cases) expect_refused(hostile);
}

TEST(HostileBytes, TlsOnThePlainPortIsAnsweredInPlainWords) {
  LiveServer server;
  Client client(server.port());
  client.send(std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) + std::string(500, 'r'));
  EXPECT_THAT(client.receive().body, HasSubstr("http://"));
  EXPECT_TRUE(client.closed());
}

TEST(HostileBytes, FoldedFieldsAreJoined) {
  LiveServer server;
  Client client(server.port());
  client.send(with("A: b\r\n  c\r\nContent-Length: 5\r\n"));
  EXPECT_EQ(client.receive().body, "POST /echo  hello");
}

TEST(HostileBytes, TheNumberOfFieldsIsLimited) {
  LiveServer server;
  const auto fields = [](int count) {
    std::string all;
    for (int i = 0; i < count; ++i) all += fmt::format("A{}: b\r\n", i);
    return all;
  };
  Client allowed(server.port());
  allowed.send(get("/echo", fields(99)));
  EXPECT_EQ(allowed.receive().status, 200);
  for (const int count : {100, 10'000}) {
    Client client(server.port());
    client.send(get("/echo", fields(count)));
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, 431);
    EXPECT_TRUE(client.closed());
  }
  Client trailers(server.port());
  trailers.send(kChunked + "0\r\n" + fields(200) + "\r\n");
  EXPECT_EQ(trailers.receive().status, 431);
}

TEST(HostileBytes, TheSizeOfTheHeaderIsLimited) {
  LiveServer server;
  Client allowed(server.port());
  allowed.send(get("/echo", "A: " + std::string(60'000, 'a') + "\r\n"));
  EXPECT_EQ(allowed.receive().status, 200);
  for (const std::string& request :
       {get("/" + std::string(70'000, 'a')), get("/", std::string(70'000, 'A') + ": b\r\n"),
        "GET /" + std::string(200'000, 'a'), std::string(70'000, 'A')}) {
    Client client(server.port());
    client.send(request);
    EXPECT_EQ(client.receive().status, 431);
    EXPECT_TRUE(client.closed());
  }
}

TEST(HostileBytes, AHeaderThatArrivesLineByLineIsLimitedToo) {
  Limits limits = quick_limits();
  limits.header_timeout = std::chrono::seconds(5);
  LiveServer server(limits);
  Client client(server.port());
  client.send("GET / HTTP/1.1\r\n");
  for (int i = 0; i < 90; ++i) {
    client.send("A: " + std::string(995, 'a') + "\r\n");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(client.receive().status, 431);
  EXPECT_TRUE(client.closed());
}

TEST(HostileBytes, TheSizeOfTheBodyIsLimitedBeforeItArrives) {
  Limits limits = quick_limits();
  limits.body_bytes = 100'000;
  LiveServer server(limits);
  Client allowed(server.port());
  allowed.send(post("/echo", std::string(100'000, 'b')));
  EXPECT_EQ(allowed.receive().body.size(), 12 + 100'000u);
  Client announced(server.port());
  announced.send(with("Content-Length: 1000000000\r\n", ""));
  const Reply reply = announced.receive();
  EXPECT_EQ(reply.status, 413);
  EXPECT_THAT(reply.body, HasSubstr("100000"));
  Client chunked(server.port());
  chunked.send(kChunked);
  for (int i = 0; i < 11; ++i) chunked.send("2710\r\n" + std::string(10'000, 'c') + "\r\n");
  EXPECT_EQ(chunked.receive().status, 413);
  EXPECT_TRUE(chunked.closed());
}

TEST(HostileBytes, ManyPromisedBodiesTakeNoMemory) {
  Limits limits = quick_limits();
  limits.body_timeout = std::chrono::seconds(20);
  LiveServer server(limits);
  std::vector<Client> clients;
  const size_t before = resident_bytes();
  for (int i = 0; i < 400; ++i) {
    clients.emplace_back(server.port());
    clients.back().send(with("Content-Length: 8000000\r\n", "x"));
  }
  while (server.application.admitted < 400) std::this_thread::yield();
  if (!kSanitized) {
    EXPECT_LT(resident_bytes() - before, 400u * 64 * 1024);
  }
}

}  // namespace
}  // namespace headwater::test
