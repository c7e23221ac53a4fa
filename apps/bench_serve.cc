// The serving bench: drives a URL, or starts a server of this binary per arm and alternates the levels between them.
#include <unistd.h>

#include <algorithm>

#include "apps/commands.h"
#include "apps/json_output.h"
#include "apps/options.h"
#include "apps/serve_engine_arm.h"
#include "bench/serve/serve_bench.h"

namespace headwater::apps {
namespace {

namespace serve = bench::serve;

struct ServeOptions {
  serve::ServeBenchOptions bench;
  std::string url, api_key, endpoint = "completions", json;
  std::string server = "/proc/self/exe";
  std::vector<std::string> arms;
  uint32_t timeout_s = 600;
  RuntimeOptions runtime;  // model: of a URL its name, else the file
  EngineOptions engine;
  std::vector<const CLI::Option*> server_flags;  // handed on to the servers
};

Status check_options(const ServeOptions& options) {
  if (options.url.empty() == options.arms.empty()) {
    return error(ErrorCode::kInvalidArgument, "give either --url URL or --arms ARM,.. (and -m MODEL)");
  }
  const auto& load = options.bench.load;
  for (size_t i = 0; i < options.arms.size(); ++i) {
    const std::string& arm = options.arms[i];
    if (std::count(options.arms.begin(), options.arms.end(), arm) > 1) {
      return error(ErrorCode::kInvalidArgument, "--arms names '{}' twice", arm);
    }
    if (arm == "engine") {
      if (options.endpoint == "chat" || load.request_rate > 0 || load.cancel_fraction > 0 || load.slow_readers > 0) {
        return error(
            ErrorCode::kInvalidArgument,
            "the arm 'engine' has no server: it takes --endpoint completions and a closed loop of clients that "
            "stay");
      }
    } else if (auto sharing = attention::parse_sharing(arm); !sharing) {
      return error(ErrorCode::kInvalidArgument, "--arms '{}' is unknown; use auto, off, always or engine", arm);
    }
  }
  return {};
}

// The flags of a server that were typed here, as it reads them.
std::vector<std::string> server_words(const ServeOptions& options, const std::string& model, const std::string& arm) {
  std::vector<std::string> words{"-m", model, "--shared-prefix", arm, "--log-level", options.runtime.log_level};
  for (const CLI::Option* flag : options.server_flags) {
    if (flag->count() == 0) continue;
    words.push_back("--" + flag->get_lnames().front());
    words.push_back(flag->as<std::string>());
  }
  return words;
}

Result<std::unique_ptr<serve::ServerArm>> start_arm(const ServeOptions& options, const std::string& model,
                                                    const std::string& arm) {
  HEADWATER_ASSIGN_OR_RETURN(auto process,
                             serve::ServerProcess::start(options.server, server_words(options, model, arm)));
  HEADWATER_ASSIGN_OR_RETURN(serve::Target target, serve::Target::of_url(process->url(), options.api_key));
  return serve::ServerArm::create(arm, std::move(target), "", std::move(process));
}

using Arms = std::vector<std::unique_ptr<serve::Arm>>;

// server: one of the arms that has a tokenizer to ask; null when there is none.
Result<Arms> create_arms(const ServeOptions& options, const serve::ServerArm*& server) {
  Arms arms;
  std::string model = options.runtime.model;
  if (!options.url.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(serve::Target target, serve::Target::of_url(options.url, options.api_key));
    HEADWATER_ASSIGN_OR_RETURN(auto arm, serve::ServerArm::create("url", std::move(target), model, nullptr));
    server = arm.get();
    arms.push_back(std::move(arm));
    return arms;
  }
  HEADWATER_ASSIGN_OR_RETURN(model, model_path(options.runtime));
  for (const std::string& name : options.arms) {
    if (name == "engine") {
      HEADWATER_ASSIGN_OR_RETURN(auto arm, ServeEngineArm::create(options.runtime, options.engine));
      arms.push_back(std::move(arm));
    } else {
      HEADWATER_ASSIGN_OR_RETURN(auto arm, start_arm(options, model, name));
      server = arm.get();
      arms.push_back(std::move(arm));
    }
  }
  return arms;
}

// Chat prompts are made of words: as many as the server's tokenizer makes the wanted tokens of, or as an estimate says.
std::string size_prompts(serve::WorkloadShape& workload, const serve::ServerArm* server) {
  if (workload.endpoint == serve::Endpoint::kCompletions) return "prompts of token ids";
  constexpr double kTokensPerWordGuess = 1.1;
  const std::optional<double> measured = server == nullptr ? std::nullopt : server->tokens_per_word();
  workload.tokens_per_word = measured.value_or(kTokensPerWordGuess);
  return fmt::format("prompts of words, {:.2f} tokens each {}", workload.tokens_per_word,
                     measured ? "by the server's /tokenize" : "by estimate: the server has no /tokenize");
}

Status bench_serve(ServeOptions& options) {
  HEADWATER_RETURN_IF_ERROR(check_options(options));
  serve::ServeBenchOptions& bench = options.bench;
  bench.workload.endpoint = options.endpoint == "chat" ? serve::Endpoint::kChat : serve::Endpoint::kCompletions;
  bench.load.timeout = std::chrono::seconds(options.timeout_s);
  bench.load.tokens_max = bench.workload.tokens_max;
  bench.metrics |= !options.arms.empty();  // an arm proves what it ran
  bench.progress = isatty(STDERR_FILENO) != 0;
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(options.json));
  const serve::ServerArm* server = nullptr;
  HEADWATER_ASSIGN_OR_RETURN(const Arms arms, create_arms(options, server));
  const std::string sizing = size_prompts(bench.workload, server);
  if (output.table != nullptr) {
    *output.table << fmt::format(
        "{}{}; {}, {} shared and {} own prompt tokens in {} group{}, {} tokens an answer; {}; {} warm-up requests\n",
        options.url.empty() ? "model " : options.url + ", model ",
        server != nullptr ? server->model() : "(in this process)", options.endpoint, bench.workload.shared_tokens,
        bench.workload.prompt_tokens, bench.workload.groups, bench.workload.groups == 1 ? "" : "s",
        bench.workload.tokens_max, sizing, bench.warm_up);
  }
  const Status ran = serve::run_serve_bench(bench, arms, output.table, output.json);
  HEADWATER_RETURN_IF_ERROR(output.close(options.json));
  return ran;
}

void add_workload_options(CLI::App& c, serve::ServeBenchOptions& bench) {
  serve::WorkloadShape& workload = bench.workload;
  c.add_option("--shared-prefix-tokens", workload.shared_tokens, "prompt tokens that the chats of a group share")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  c.add_option("--groups", workload.groups, "different prefixes")->check(CLI::Range(1, 10000))->capture_default_str();
  c.add_option("--prompt-tokens", workload.prompt_tokens, "prompt tokens of each chat's own")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c.add_option("--max-tokens", workload.tokens_max, "tokens of an answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  c.add_flag("--cold", workload.cold, "a new prefix in every level: nothing is cached");
  c.add_option("--seed", workload.seed, "of prompts, arrivals and vanishing clients")->capture_default_str();
  c.add_option("--concurrency", bench.concurrency, "clients at once, a level each")
      ->delimiter(',')
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  c.add_option("--requests", bench.requests, "of a level (0: 4 a client)")->capture_default_str();
  c.add_option("--request-rate", bench.load.request_rate, "arrivals/s, Poisson, instead of clients that wait")
      ->check(CLI::Range(1e-3, 1e6));
  c.add_option("--cancel-fraction", bench.load.cancel_fraction, "clients that vanish at a random point")
      ->check(CLI::Range(0.0, 1.0));
  c.add_option("--slow-readers", bench.load.slow_readers, "more clients, that stop reading")
      ->check(CLI::Range(0, 10000));
}

}  // namespace

void add_bench_serve(CLI::App& bench, std::function<Status()>& run) {
  auto o = std::make_shared<ServeOptions>();
  CLI::App* c = bench.add_subcommand("serve", "load on a server: throughput, delays, and which attention path it took");
  c->add_option("--url", o->url, "an OpenAI-compatible server, http://host:port");
  c->add_option("--arms", o->arms, "or auto, off, always: servers started here; engine: no server")->delimiter(',');
  c->add_option("--server", o->server, "the program of those servers (default: this one)");
  c->add_option("--api-key", o->api_key, "sent as a bearer token")->envname("HEADWATER_API_KEY");
  c->add_option("--endpoint", o->endpoint, "chat or completions")
      ->check(CLI::IsMember({"chat", "completions"}))
      ->capture_default_str();
  add_workload_options(*c, o->bench);
  c->add_option("--reps", o->bench.repetitions, "of each level, arms in turn")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option("--warm-up", o->bench.warm_up, "requests to each arm first, not counted")->capture_default_str();
  c->add_option("--timeout", o->timeout_s, "seconds of a request")->check(CLI::Range(1, 86400))->capture_default_str();
  c->add_flag("--metrics", o->bench.metrics, "read /metrics around each level (with --arms always)");
  c->add_option("--json", o->json, "JSON lines to this file; - for stdout");
  add_runtime_options(*c, o->runtime);
  add_engine_options(*c, o->engine);
  c->remove_option(c->get_option("--shared-prefix"));  // the arm says it
  c->get_option("--model")->description("of --arms: a GGUF file; of --url: the name (default: its first)");
  bool of_server = false;
  for (CLI::Option* option : c->get_options()) {
    of_server |= option->check_name("--model");
    if (!of_server || option->check_name("--model") || option->check_name("--log-level")) continue;
    o->server_flags.push_back(option);
  }
  for (const char* rare : {"--costs", "--log-level", "--block-size", "--kv-cache-dtype", "--shared-prefix-min-pages",
                           "--shared-prefix-min-members"}) {
    c->get_option(rare)->group("");  // the help fits a screen
  }
  c->footer("The servers of --arms also take the other flags of serve that describe the engine.");
  c->callback([o, &run] { run = [o] { return bench_serve(*o); }; });
}

}  // namespace headwater::apps
