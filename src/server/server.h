// Door of the room: an OpenAI-compatible server over one engine.
//
//   open() --listening, "Loading model"--> serve() --answering--> drain() --503, running answers end--> run() returns
//
// Threads: run() is the network thread; the engine gets one of its own at serve(); bodies are decoded on a small pool.
// docs/contract.md says who owns what.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "server/http/http.h"
#include "server/openai/decode.h"

namespace headwater::server {

struct ServerConfig {
  std::string host = "127.0.0.1";
  uint16_t port = 8000;  // 0: any free one
  http::Limits limits;
  http::TlsFiles tls;
  std::vector<std::string> keys;  // none: nobody needs one
  bool salt_per_key = false;      // requests of different keys share no cached prefix
  bool old_metric_names = false;
  std::chrono::milliseconds keep_alive{5000};  // between comments on a silent stream
  std::chrono::milliseconds drain{30'000};     // how long answers in progress may go on after drain()
  std::optional<uint64_t> seed;                // of requests without one
  std::string version;
};

class Server {
 public:
  // Listens at once. Errors: the address, the TLS files, the keys.
  static Result<std::unique_ptr<Server>> open(ServerConfig config);
  virtual ~Server() = default;

  virtual uint16_t port() const = 0;

  // Any thread.
  virtual void serve(openai::ServedModel model, engine::Engine& engine) = 0;  // once; both outlive run()
  virtual void drain() = 0;     // accepts no more, lets answers end; a second call stops at once
  virtual void stop_now() = 0;  // drops every connection

  // Until drained or stopped. SIGTERM and SIGINT drain, a second one stops at once.
  virtual void run() = 0;
};

}  // namespace headwater::server
