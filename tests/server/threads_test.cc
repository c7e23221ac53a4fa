// The whole server over a scripted model, in one process, so that sanitizers see all of its threads at once: clients that
// stream, vanish, look at pages and metrics, and a drain in the middle of it.
#include <gtest/gtest.h>

#include <thread>

#include "server/openai/served_test_kit.h"
#include "server/server.h"
#include "simulation/scripted_model.h"
#include "support/http_kit.h"

namespace headwater::server {
namespace {

using test::Client;
using test::Reply;

constexpr uint32_t kContext = 256;

class ServerThreads : public ::testing::Test {
 protected:
  ServerThreads()
      : vocabulary_(model_.tokenizer().vocabulary_size()),
        backend_(vocabulary_),
        decoder_(backend_, vocabulary_, kContext) {
    engine::EngineConfig config{
        .sequences_max = 8, .queue_requests_max = 64, .page_size = 8, .outbox_emissions_max = 16};
    config.kv_dtype = DType::kF32;
    config.kv_bytes = decoder_.kv_bytes(200, config.page_size);
    engine_ = engine::Engine::create(config, decoder_, backend_).value();
    ServerConfig settings{.port = 0, .keys = {"key"}, .version = "test"};
    settings.drain = std::chrono::seconds(20);
    server_ = Server::open(std::move(settings)).value();
    network_ = std::thread([this] { server_->run(); });
  }
  ~ServerThreads() override {
    server_->stop_now();
    network_.join();
  }

  static std::string body(int client) {
    return R"({"prompt": "the same beginning of every prompt here, client )" + std::to_string(client % 3) +
           R"(", "max_tokens": 40, "temperature": 0, "ignore_eos": true)";
  }
  Reply ask(const std::string& request) const {
    Client client(server_->port());
    client.send(request);
    return client.receive();
  }
  static std::string keyed(const std::string& target, const std::string& payload) {
    return test::post(target, payload, "Authorization: Bearer key\r\nContent-Type: application/json\r\n");
  }
  static std::string looking(const std::string& target) { return test::get(target, "Authorization: Bearer key\r\n"); }

  openai::TestModel model_;
  uint32_t vocabulary_;
  testing::ScriptedBackend backend_;
  testing::ScriptedDecoder decoder_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<Server> server_;
  std::thread network_;
};

TEST_F(ServerThreads, StreamsVanishersAndOnlookersLeaveEveryAnswerWhole) {
  EXPECT_EQ(ask(looking("/health")).status, 503);
  server_->serve(model_.served(kContext), *engine_);
  while (ask(looking("/health")).status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::string expected[3];
  for (int i = 0; i < 3; ++i) {
    const Reply reply = ask(keyed("/v1/completions", body(i) + "}"));
    ASSERT_EQ(reply.status, 200) << reply.body;
    expected[i] = reply.body.substr(reply.body.find("\"choices\""),
                                    reply.body.find("\"usage\"") - reply.body.find("\"choices\""));
  }
  const auto answers = [&](int client) {
    for (int round = 0; round < 6; ++round) {
      const Reply whole = ask(keyed("/v1/completions", body(client) + "}"));
      EXPECT_NE(whole.body.find(expected[client % 3]), std::string::npos) << whole.status << " " << whole.body;
      const Reply stream = ask(keyed("/v1/completions", body(client) + R"(, "stream": true, "n": 2})"));
      EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n")) << stream.status << " " << stream.body;
    }
  };
  const auto vanishes = [&](int client) {
    for (int round = 0; round < 30; ++round) {
      Client gone(server_->port());
      gone.send(keyed("/v1/completions", body(client) + R"(, "stream": true})"));
      if (round % 3 == 1) gone.receive_some(200);
      round % 2 == 0 ? gone.reset() : gone.close();
    }
  };
  const auto looks = [&] {
    for (int round = 0; round < 30; ++round) {
      const Reply cache = ask(looking("/v1/cache?audit=true"));
      EXPECT_NE(cache.body.find(R"("audit":"ok")"), std::string::npos) << cache.body;
      EXPECT_EQ(ask(looking("/metrics")).status, 200);
      EXPECT_EQ(ask(keyed("/tokenize", R"({"content": "hello"})")).status, 200);
      EXPECT_EQ(ask(keyed("/v1/completions", "{")).status, 400);
      EXPECT_EQ(ask(test::get("/v1/models")).status, 401);
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(answers, i);
  for (int i = 0; i < 2; ++i) clients.emplace_back(vanishes, i);
  clients.emplace_back(looks);
  for (std::thread& client : clients) client.join();

  for (int tries = 0;; ++tries) {
    const Reply cache = ask(looking("/v1/cache?audit=true"));
    if (cache.body.find(R"("held":0)") != std::string::npos) break;
    ASSERT_LT(tries, 500) << cache.body;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

TEST_F(ServerThreads, ADrainLetsAnswersEndAndASecondOneStops) {
  server_->serve(model_.served(kContext), *engine_);
  while (ask(looking("/health")).status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  Client streaming(server_->port());
  streaming.send(keyed("/v1/completions", body(0) + R"(, "stream": true, "n": 8})"));
  EXPECT_FALSE(streaming.receive_some(100).empty());
  server_->drain();
  std::string rest, block;
  while (!(block = streaming.receive_some(4096)).empty()) rest += block;
  EXPECT_NE(rest.find("data: [DONE]"), std::string::npos);
}

TEST_F(ServerThreads, StoppingCutsAnswersThatWait) {
  server_->serve(model_.served(kContext), *engine_);
  while (ask(looking("/health")).status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<Client>(server_->port()));
    clients.back()->send(keyed("/v1/completions", body(i) + R"(, "n": 8})"));
  }
  server_->stop_now();
  for (const auto& client : clients) EXPECT_TRUE(client->closed());
}

TEST_F(ServerThreads, HealthSaysWhenSeveralStepsInARowHaveFailedAndWhenOneWorksAgain) {
  decoder_.fail_next(3);
  server_->serve(model_.served(kContext), *engine_);
  while (ask(looking("/health")).status != 200) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(ask(looking("/ping")).status, 200);
    EXPECT_EQ(ask(keyed("/v1/completions", body(i) + "}")).status, 500);
  }
  Reply health = ask(looking("/health"));  // an answer may be read before its step has returned
  for (int tries = 0; health.status == 200 && tries < 500; ++tries) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    health = ask(looking("/health"));
  }
  EXPECT_EQ(health.status, 503);
  EXPECT_NE(health.body.find("broken"), std::string::npos) << health.body;
  EXPECT_EQ(ask(looking("/ping")).status, 503);
  EXPECT_EQ(ask(keyed("/v1/completions", body(3) + "}")).status, 200);
  EXPECT_EQ(ask(looking("/health")).status, 200);
}

TEST_F(ServerThreads, StoppingClosesWhoIsNotAcceptedYet) {
  const auto server = Server::open({.port = 0, .version = "test"}).value();
  Client waiting(server->port());
  waiting.send(looking("/health"));
  server->stop_now();
  server->run();  // stops before it accepts
  EXPECT_TRUE(waiting.closed());
}

}  // namespace
}  // namespace headwater::server
