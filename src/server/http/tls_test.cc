// TLS: certificates that cannot serve, and bytes that are no handshake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>

#include <filesystem>
#include <fstream>

#include "server/http/tls.h"
#include "support/http_kit.h"

namespace headwater::test {
namespace {

using testing::HasSubstr;

std::string message_of(const TlsFiles& files) {
  const auto loaded = server::http::load_tls(files);
  return loaded.is_ok() ? "" : loaded.status().message();
}

class Tls : public testing::Test {
 protected:
  std::string folder_ = testing::TempDir();
  TlsFiles good_ = make_certificate(folder_, "good");
};

TEST_F(Tls, ServesRequestsAndStreams) {
  LiveServer server(quick_limits(), good_);
  Client client(server.port(), true);
  client.send(post("/echo", std::string(200'000, 'b')));
  EXPECT_EQ(client.receive().body.size(), 12 + 200'000u);
  client.send(get("/stream?chunks=100&bytes=20000") + get("/echo"));
  EXPECT_EQ(client.receive().body.size(), 2'000'000u);
  EXPECT_EQ(client.receive().status, 200);
}

TEST_F(Tls, RefusalsReachAClientThatIsStillSending) {
  LiveServer server(quick_limits(), good_);
  Client client(server.port(), true);
  client.send("POST /refuse HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n");
  client.send(std::string(200'000, 'b'));
  EXPECT_EQ(client.receive().status, 401);
  EXPECT_TRUE(client.closed());
}

TEST_F(Tls, PlainHttpIsToldToUseTls) {
  LiveServer server(quick_limits(), good_);
  Client client(server.port());
  client.send(get("/echo"));
  const Reply reply = client.receive();
  EXPECT_EQ(reply.status, 400);
  EXPECT_THAT(reply.body, HasSubstr("https://"));
  EXPECT_TRUE(client.closed());
}

TEST_F(Tls, BrokenHandshakesAreClosed) {
  LiveServer server(quick_limits(), good_);
  Client client(server.port());
  client.send(std::string("\x16\x03\x01\x00\x05", 5) + "noise");
  EXPECT_TRUE(client.closed());
  Client slow(server.port());
  slow.send("\x16");
  EXPECT_TRUE(slow.closed());
  EXPECT_TRUE(server.wait_until_empty());
}

TEST_F(Tls, NamesTheFileThatCannotBeReadAndTheRemedy) {
  EXPECT_THAT(message_of({good_.certificate, ""}), HasSubstr("the key is missing"));
  EXPECT_THAT(message_of({"/nowhere/a.crt", good_.key}), HasSubstr("'/nowhere/a.crt' cannot be read"));
  EXPECT_THAT(message_of({good_.certificate, "/nowhere/a.key"}), HasSubstr("'/nowhere/a.key' cannot be read"));
  EXPECT_THAT(message_of({folder_, good_.key}), HasSubstr("cannot be read"));
  const std::string text = folder_ + "/text";
  std::ofstream(text) << "no PEM\n";
  EXPECT_THAT(message_of({text, good_.key}), HasSubstr("no certificate chain in PEM"));
  EXPECT_THAT(message_of({good_.certificate, text}), HasSubstr("no private key in PEM"));
  EXPECT_EQ(message_of(good_), "");
}

TEST_F(Tls, NamesAPairThatDoesNotMatch) {
  const TlsFiles other = make_certificate(folder_, "other");
  EXPECT_THAT(message_of({good_.certificate, other.key}), HasSubstr("does not belong to the certificate"));
}

TEST_F(Tls, RefusesAKeyWithAPassphrase) {
  const std::string locked = folder_ + "/locked.key";
  EVP_PKEY* key = EVP_EC_gen("P-256");
  FILE* file = std::fopen(locked.c_str(), "w");
  ASSERT_NE(file, nullptr);
  PEM_write_PrivateKey(file, key, EVP_aes_128_cbc(), reinterpret_cast<const unsigned char*>("secret"), 6, nullptr,
                       nullptr);
  std::fclose(file);
  EVP_PKEY_free(key);
  EXPECT_THAT(message_of({good_.certificate, locked}), HasSubstr("needs a passphrase"));
}

TEST_F(Tls, RefusesVersionsBefore12) {
  LiveServer server(quick_limits(), good_);
  const auto connects = [&](int version) {
    Client client(server.port());
    SSL_CTX* context = SSL_CTX_new(TLS_client_method());
    SSL_CTX_set_security_level(context, 0);
    SSL_CTX_set_min_proto_version(context, version);
    SSL_CTX_set_max_proto_version(context, version);
    SSL* ssl = SSL_new(context);
    SSL_set_fd(ssl, client.native());
    const bool connected = SSL_connect(ssl) == 1;
    SSL_free(ssl);
    SSL_CTX_free(context);
    return connected;
  };
  EXPECT_FALSE(connects(TLS1_1_VERSION));
  EXPECT_TRUE(connects(TLS1_2_VERSION));
  EXPECT_TRUE(connects(TLS1_3_VERSION));
}

}  // namespace
}  // namespace headwater::test
