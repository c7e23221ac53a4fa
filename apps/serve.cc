// headwater serve: the OpenAI-compatible server, wired to a model.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <boost/asio/ip/address.hpp>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <thread>

#include "apps/commands.h"
#include "apps/config_file.h"
#include "apps/prompt_json.h"
#include "apps/runtime.h"
#include "apps/text_file.h"
#include "server/server.h"

namespace headwater::apps {
namespace {

struct ServeOptions {
  RuntimeOptions runtime;
  EngineOptions engine;
  std::vector<std::string> names, keys;
  std::string host = "127.0.0.1", key_file, certificate, key;
  uint16_t port = 8000;
  bool allow_remote = false, salt_per_key = false, old_metric_names = false;
  uint32_t queued_requests = 512, queued_tokens = 4u << 20, connections = 1024;
  uint64_t body_bytes = 8u << 20;
  std::optional<uint64_t> seed;
  double drain_seconds = 30, keep_alive_seconds = 5;
};

Status read_keys(const ServeOptions& options, std::vector<std::string>& keys) {
  keys = options.keys;
  if (options.key_file.empty()) return {};
  constexpr size_t kBytesMax = 1 << 20;
  HEADWATER_ASSIGN_OR_RETURN(std::string text,
                             read_text("--api-key-file", options.key_file, "a file of keys", kBytesMax));
  std::istringstream lines(std::move(text));
  const size_t before = keys.size();
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line[0] != '#') keys.push_back(line);
  }
  if (keys.size() == before) {
    return error(ErrorCode::kInvalidArgument, "--api-key-file {} holds no key; write one on each line",
                 options.key_file);
  }
  return {};
}

bool is_loopback(const std::string& host) {
  boost::system::error_code failed;
  const auto address = boost::asio::ip::make_address(host, failed);
  return failed ? host == "localhost" : address.is_loopback();
}

Result<server::ServerConfig> server_config(const ServeOptions& options) {
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  server::ServerConfig config;
  config.host = options.host;
  config.port = options.port;
  config.limits.body_bytes = options.body_bytes;
  config.limits.bodies_bytes = std::max<uint64_t>(config.limits.bodies_bytes, 4 * options.body_bytes);
  config.limits.connections = options.connections;
  config.tls = {options.certificate, options.key};
  HEADWATER_RETURN_IF_ERROR(read_keys(options, config.keys));
  config.salt_per_key = options.salt_per_key;
  config.old_metric_names = options.old_metric_names;
  config.keep_alive = milliseconds(options.keep_alive_seconds);
  config.drain = milliseconds(options.drain_seconds);
  config.seed = options.seed;
  config.version = HEADWATER_VERSION;
  if (!is_loopback(options.host)) {
    if (!options.allow_remote) {
      return error(ErrorCode::kInvalidArgument,
                   "--host {} can be reached from other machines; say --allow-remote as well if that is meant",
                   options.host);
    }
    if (config.keys.empty()) {
      fmt::print(stderr, "warning: anyone who reaches {} may use this server; set --api-key or --api-key-file\n",
                 options.host);
    }
    if (options.certificate.empty()) {
      fmt::print(stderr, "warning: keys and prompts travel in the clear; set --ssl-certfile and --ssl-keyfile\n");
    }
  }
  return config;
}

// Every connection needs a descriptor.
void raise_descriptor_limit(uint32_t connections) {
  rlimit limit{};
  const rlim_t needed = rlim_t{connections} + 64;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = std::min(needed, limit.rlim_max);
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < needed) {
    fmt::print(stderr, "warning: this process may open {} files, which is less than --max-connections {} need\n",
               limit.rlim_cur, connections);
  }
}

// What becomes of a model between "Loading model" and the first request.
struct Loaded {
  Runtime runtime;
  EngineHandle handle;
  server::openai::ServedModel served;
};

// Whether the template marks thinking in a way that can be separated.
bool separates_thinking(const Runtime& runtime) {
  const auto mentions = [&](const char* text) {
    return runtime.chat_template != nullptr && runtime.chat_template->mentions(text);
  };
  const bool reasoning = mentions("<think>") && mentions("</think>");
  if (reasoning) {
    fmt::print(stderr, "thinking text inside <think> ... </think> goes to reasoning_content\n");
  } else if (mentions("<|channel|>") || mentions("[THINK]") || mentions("thinking")) {
    fmt::print(stderr, "thinking the template's way of marking it is not known here: it stays in content\n");
  }
  return reasoning;
}

Status load(const ServeOptions& options, const engine::EngineConfig& config, Loaded& loaded) {
  HEADWATER_ASSIGN_OR_RETURN(loaded.runtime, Runtime::load(options.runtime));
  HEADWATER_ASSIGN_OR_RETURN(loaded.handle, create_engine(loaded.runtime, config));
  print_settings(loaded.runtime, *loaded.handle.engine);
  const engine::Engine& engine = *loaded.handle.engine;
  const kv::CacheConfig& pool = engine.cache().config();
  const uint64_t pool_tokens = uint64_t{pool.pages} * pool.page_size;
  server::openai::ServedModel& served = loaded.served;
  served =
      served_model(loaded.runtime, static_cast<uint32_t>(std::min<uint64_t>(engine.config().context_max, pool_tokens)));
  served.names = options.names;
  if (served.names.empty()) served.names = {std::filesystem::path(loaded.runtime.path).stem().string()};
  served.reasoning = separates_thinking(loaded.runtime);
  if (served.context_max < engine.config().context_max) {
    fmt::print(stderr,
               "warning: the KV pool holds {} tokens, less than the context of {}, so a request may have {}; raise "
               "--kv-cache-memory or lower --max-model-len\n",
               served.context_max, engine.config().context_max, served.context_max);
  }
  served.created = std::time(nullptr);
  return {};
}

void print_server_settings(const ServeOptions& options, const server::ServerConfig& config) {
  fmt::print(stderr, "server   {}, TLS {}; {} connections, bodies to {} MiB, queue {} requests or {} tokens\n",
             config.keys.empty() ? "no keys" : fmt::format("{} keys", config.keys.size()),
             config.tls.certificate.empty() ? "off" : "on", config.limits.connections, config.limits.body_bytes >> 20,
             options.queued_requests, options.queued_tokens);
}

Status serve(const ServeOptions& options) {
  HEADWATER_ASSIGN_OR_RETURN(engine::EngineConfig config, engine_config(options.engine));
  HEADWATER_RETURN_IF_ERROR(check_options(options.runtime));
  config.queue_requests_max = options.queued_requests;
  config.queue_tokens_max = options.queued_tokens;
  config.outbox_emissions_max = 256;  // what a client that does not read may leave in the engine
  HEADWATER_ASSIGN_OR_RETURN(server::ServerConfig listening, server_config(options));
  raise_descriptor_limit(options.connections);
  std::signal(SIGPIPE, SIG_IGN);
  HEADWATER_ASSIGN_OR_RETURN(const std::unique_ptr<server::Server> server, server::Server::open(listening));
  const std::string url =
      fmt::format(fmt::runtime(options.host.find(':') == std::string::npos ? "{}://{}:{}" : "{}://[{}]:{}"),
                  options.certificate.empty() ? "http" : "https", options.host, server->port());
  fmt::print("listening on {}\n", url);
  std::fflush(stdout);
  print_server_settings(options, listening);

  Loaded loaded;
  Status status;
  std::atomic<bool> load_ended{false};
  std::thread loader([&] {
    status = load(options, config, loaded);
    load_ended = true;
    if (!status) return server->stop_now();
    server->serve(loaded.served, *loaded.handle.engine);
    fmt::print(stderr, "ready    {}, model '{}'\n", url, loaded.served.names.front());
  });
  server->run();
  if (!load_ended) {  // stopped while loading, which cannot be interrupted
    std::cout.flush();
    std::_Exit(0);
  }
  loader.join();
  return status;
}

}  // namespace

void add_serve(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = app.add_subcommand("serve", "OpenAI-compatible server");
  const auto add = [command](const char* flags, auto& value, const char* text, const char* variable) {
    return command->add_option(flags, value, text)->envname(variable)->capture_default_str();
  };
  const auto add_flag = [command](const char* flags, bool& value, const char* text, const char* variable) {
    return command->add_flag(flags, value, text)->envname(variable);
  };
  command->add_option("file", options->runtime.model, "the model, as with --model");
  add_runtime_options(*command, options->runtime);
  add_engine_options(*command, options->engine);
  add("--host", options->host, "address to listen on", "HEADWATER_HOST");
  add("--port", options->port, "0: any free one", "HEADWATER_PORT")->check(CLI::Range(0, 65535));
  add_flag("--allow-remote", options->allow_remote, "--host may be reached from other machines",
           "HEADWATER_ALLOW_REMOTE");
  add("--served-model-name", options->names, "what requests call the model (default: the file's name)",
      "HEADWATER_SERVED_MODEL_NAME");
  add("--api-key", options->keys, "clients need one of these keys", "HEADWATER_API_KEY");
  add("--api-key-file", options->key_file, "one key on each line", "HEADWATER_API_KEY_FILE");
  add_flag("--salt-per-key", options->salt_per_key, "keys share no cached prefix", "HEADWATER_SALT_PER_KEY");
  CLI::Option* certificate =
      add("--ssl-certfile", options->certificate, "PEM chain; serves HTTPS", "HEADWATER_SSL_CERTFILE");
  CLI::Option* key = add("--ssl-keyfile", options->key, "its PEM key", "HEADWATER_SSL_KEYFILE");
  certificate->needs(key);
  key->needs(certificate);
  add("--max-queued-requests", options->queued_requests, "one more gets 429", "HEADWATER_MAX_QUEUED_REQUESTS")
      ->check(CLI::Range(1u, 1u << 20));
  add("--max-queued-tokens", options->queued_tokens, "prompt tokens waiting; more get 429",
      "HEADWATER_MAX_QUEUED_TOKENS")
      ->check(CLI::Range(1u, UINT32_MAX));
  add("--max-connections", options->connections, "one more closes the longest idle one, or gets 503",
      "HEADWATER_MAX_CONNECTIONS")
      ->check(CLI::Range(1u, 1u << 20));
  add("--max-body-bytes", options->body_bytes, "a larger request gets 413", "HEADWATER_MAX_BODY_BYTES")
      ->check(CLI::Range(uint64_t{1024}, uint64_t{1} << 32));
  add("--keep-alive-seconds", options->keep_alive_seconds, "between comments on a silent stream",
      "HEADWATER_KEEP_ALIVE_SECONDS")
      ->check(CLI::Range(0.01, 86400.0));
  add("--drain-seconds", options->drain_seconds, "for answers in progress at SIGTERM", "HEADWATER_DRAIN_SECONDS")
      ->check(CLI::Range(0.0, 86400.0));
  command->add_option("--seed", options->seed, "of requests without a seed (default: random)")
      ->envname("HEADWATER_SEED");
  add_flag("--old-metric-names", options->old_metric_names, "older vLLM names in /metrics too",
           "HEADWATER_OLD_METRIC_NAMES");
  add_config_option(*command);
  command->callback([options, &run] { run = [options] { return serve(*options); }; });
}

}  // namespace headwater::apps
