// One scenario on the real engine: chats behind a common prefix, or none, decode together. Says how fast, and where the
// time of a step goes.
//
// Two phases, each on its own. Prefill: every chat asks for one token, so all steps compute prompts; chats behind the
// prefix wait until one of them has computed it. Decode, once per repetition: the same prompts come from the prefix
// cache, all but their last page; counted are the steps in which every chat decodes one token and nothing else runs.
// Several arms have an engine and a KV pool each and share the weights; their steps alternate, but where the back end
// runs ahead: there a step of one arm would stand between two of the other, so each arm has a phase to itself.
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>

#include "apps/commands.h"
#include "apps/json_output.h"
#include "apps/step_arm.h"
#include "bench/statistics.h"

namespace headwater::apps {
namespace {

namespace json = boost::json;
using bench::StepPhase;

struct StepBenchOptions {
  RuntimeOptions runtime;
  EngineOptions engine;
  uint32_t batch = 16, shared_tokens = 2048, prompt_tokens = 32, tokens_max = 64, repetitions = 1;
  std::vector<std::string> arms;  // empty: one, as engine.shared_prefix says
  std::string json;
  bool prefill = false;
  bool inject_fault = false;
};

std::vector<PromptRequest> scenario(const StepBenchOptions& options, uint32_t vocabulary, uint32_t tokens_max) {
  constexpr uint64_t kSeed = 1;
  Random random(kSeed);
  const auto draw = [&](std::vector<TokenId>& to, uint32_t count) {
    while (count-- > 0) to.push_back(static_cast<TokenId>(random.below(vocabulary)));
  };
  std::vector<TokenId> shared;
  draw(shared, options.shared_tokens);
  std::vector<PromptRequest> prompts(options.batch);
  for (PromptRequest& prompt : prompts) {
    prompt.id = std::to_string(&prompt - prompts.data());
    prompt.request.prompt = shared;
    draw(prompt.request.prompt, options.prompt_tokens);
    prompt.request.sampling.tokens_max = tokens_max;
    prompt.request.sampling.temperature = 0;
    prompt.request.sampling.ignore_stop_ids = true;
  }
  return prompts;
}

// The pool that the scenario needs when nothing is evicted: the prefix once, each chat's own tokens, and pages that are
// computed again before they are found to be there already.
uint64_t pool_tokens(const StepBenchOptions& options, uint32_t page_size) {
  constexpr uint64_t kSparePages = 3;  // a chat
  const uint64_t own = options.shared_tokens % page_size + options.prompt_tokens + options.tokens_max;
  return options.shared_tokens + options.batch * (own + kSparePages * page_size) + 8 * page_size;
}

Status run_phase(std::span<StepArm> arms, StepPhase phase, std::span<const PromptRequest> prompts,
                 const std::string& label) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  for (StepArm& arm : arms) HEADWATER_RETURN_IF_ERROR(arm.submit(phase, prompts));
  for (uint32_t steps = 1; std::ranges::any_of(arms, [](const StepArm& arm) { return !arm.done(); }); ++steps) {
    for (StepArm& arm : arms) {
      if (!arm.done()) HEADWATER_RETURN_IF_ERROR(arm.step());
    }
    if (terminal) fmt::print(stderr, "\r{}, step {} ", label, steps);
  }
  if (terminal) fmt::print(stderr, "\r{:60}\r", "");
  return {};
}

struct StepBenchResult {
  std::vector<StepArm> arms;
  ops::Peaks peaks;
  bool texts_equal = true;     // of all arms and repetitions
  bool promises_equal = true;  // the back end
  bool is_replayed = false;    // steps of decoding, on a device
  bool runs_ahead = false;
};

Status create_arms(const StepBenchOptions& options, Runtime& runtime, bench::TimedBackend& timer,
                   StepBenchResult& result) {
  const model::ModelShape& shape = runtime.model->shape();
  result.promises_equal = runtime.backend->info().invariant;
  result.is_replayed = runtime.backend->info().records;
  result.runs_ahead = runtime.backend->info().runs_ahead;
  HEADWATER_ASSIGN_OR_RETURN(result.peaks, runtime.backend->measure_peaks(shape.q_heads / shape.kv_heads));
  std::vector<std::string> names = options.arms;
  if (names.empty()) names.push_back(options.engine.shared_prefix);
  for (const std::string& name : names) {
    EngineOptions engine_options = options.engine;
    engine_options.shared_prefix = name;
    HEADWATER_ASSIGN_OR_RETURN(engine::EngineConfig config, engine_config(engine_options));
    config.sequences_max = std::max(config.sequences_max, options.batch);
    config.step_tokens_max = std::max(config.step_tokens_max, options.batch);
    const ops::KvShape kv = shape.kv_shape(config.page_size, 0, config.kv_dtype);
    const uint64_t bytes = pool_tokens(options, config.page_size) * kv.bytes_token_layer() * kv.layers;
    if (config.kv_bytes == 0) config.kv_bytes = bytes;
    config.inject_page_fault = options.inject_fault && result.arms.empty();
    HEADWATER_ASSIGN_OR_RETURN(EngineHandle handle, create_engine(runtime, config));
    result.arms.emplace_back(runtime, timer, result.peaks, std::move(handle));
  }
  return {};
}

Status run_phase(StepBenchResult& result, StepPhase phase, std::span<const PromptRequest> prompts,
                 const std::string& label) {
  if (!result.runs_ahead) return run_phase(std::span(result.arms), phase, prompts, label);
  for (StepArm& arm : result.arms) HEADWATER_RETURN_IF_ERROR(run_phase({&arm, 1}, phase, prompts, label));
  return {};
}

Status run_scenario(const StepBenchOptions& options, const Runtime& runtime, StepBenchResult& result) {
  const uint32_t vocabulary = runtime.tokenizer->vocabulary_size();
  HEADWATER_RETURN_IF_ERROR(run_phase(result, StepPhase::kPrefill, scenario(options, vocabulary, 1), "prefill"));
  const std::vector<PromptRequest> prompts = scenario(options, vocabulary, options.tokens_max);
  std::optional<Texts> texts;
  for (uint32_t repetition = 1; repetition <= options.repetitions; ++repetition) {
    const std::string label = fmt::format("decode {}/{}", repetition, options.repetitions);
    HEADWATER_RETURN_IF_ERROR(run_phase(result, StepPhase::kDecode, prompts, label));
    for (StepArm& arm : result.arms) {
      HEADWATER_RETURN_IF_ERROR(arm.finish_decode());
      if (!texts) texts = arm.texts();
      result.texts_equal &= arm.texts() == *texts;
    }
  }
  if (!result.is_replayed) return {};
  for (StepArm& arm : result.arms) HEADWATER_RETURN_IF_ERROR(arm.time_kinds(prompts));
  return {};
}

double lowest(const std::vector<double>& values) {
  return *std::ranges::min_element(values);
}
double highest(const std::vector<double>& values) {
  return *std::ranges::max_element(values);
}

void print_tables(const StepBenchOptions& options, const StepBenchResult& result, std::ostream& table) {
  table << fmt::format("{} chats, {} shared and {} own prompt tokens, {} decoded, {} repetition{}\n", options.batch,
                       options.shared_tokens, options.prompt_tokens, options.tokens_max, options.repetitions,
                       options.repetitions == 1 ? "" : "s");
  for (const StepArm& arm : result.arms) {
    const attention::Outcome& outcome = arm.outcome();
    const bool flat = outcome.path == attention::Path::kFlat;
    table << fmt::format("\narm {}: path {}{}, groups {}, members {}, pages attended once {}\n\n", arm.name(),
                         attention::to_string(outcome.path),
                         flat ? fmt::format(" ({})", attention::to_string(outcome.reason())) : "", outcome.groups,
                         outcome.members, outcome.shared_pages);
    bench::print_profile(arm.decode_profile(), table);
    if (options.prefill && !result.is_replayed) {  // on a device no operation of a prompt's step is seen alone
      table << '\n';
      bench::print_profile(arm.prefill_profile(), table);
    }
    const std::vector<double>& rates = arm.decode_tokens_per_s();
    table << fmt::format("\ndecode {:.1f} tokens/s [{:.1f}, {:.1f}]; prefill {} tokens at {:.1f} tokens/s\n",
                         bench::median(rates), lowest(rates), highest(rates), arm.prefill_tokens(),
                         arm.prefill_tokens_per_s());
  }
  if (result.arms.size() < 2) return;
  const StepArm& first = result.arms.front();
  table << '\n';
  for (const StepArm& arm : std::span(result.arms).subspan(1)) {
    table << fmt::format("decode {} / {}: {:.3f}; ", first.name(), arm.name(),
                         bench::median(first.decode_tokens_per_s()) / bench::median(arm.decode_tokens_per_s()));
  }
  table << fmt::format("texts of the arms {}\n", result.texts_equal ? "equal"
                                                 : result.promises_equal
                                                     ? "DIFFERENT"
                                                     : "differ (--sharing-invariant promises equal ones)");
}

json::object arm_line(const StepBenchOptions& options, const StepArm& arm) {
  const std::vector<double>& rates = arm.decode_tokens_per_s();
  return {{"arm", arm.name()},
          {"batch", options.batch},
          {"shared_tokens", options.shared_tokens},
          {"prompt_tokens", options.prompt_tokens},
          {"max_tokens", options.tokens_max},
          {"prefill_tokens", arm.prefill_tokens()},
          {"prefill_tokens_per_s", arm.prefill_tokens_per_s()},
          {"decode_tokens_per_s", bench::median(rates)},
          {"decode_tokens_per_s_min", lowest(rates)},
          {"decode_tokens_per_s_max", highest(rates)},
          {"step_ms", arm.decode_profile().ms()},
          {"steps", arm.decode_profile().steps()},
          {"path", attention::to_string(arm.outcome().path)},
          {"groups", arm.outcome().groups},
          {"members", arm.outcome().members},
          {"shared_pages", arm.outcome().shared_pages}};
}

void write_lines(const StepBenchOptions& options, const Runtime& runtime, const StepBenchResult& result,
                 std::ostream& out) {
  for (const StepArm& arm : result.arms) {
    bench::write_profile(arm.decode_profile(), arm.name(), out);
    if (options.prefill && !result.is_replayed) bench::write_profile(arm.prefill_profile(), arm.name(), out);
  }
  for (const StepArm& arm : result.arms) out << json::serialize(arm_line(options, arm)) << '\n';
#if defined(__clang__)
  constexpr const char* kCompiler = "clang " __clang_version__;
#else
  constexpr const char* kCompiler = "gcc " __VERSION__;
#endif
  const ops::BackendInfo& info = runtime.backend->info();
  const json::object summary{{"target", info.target},
                             {"backend", info.name},
                             {"threads", info.workers},
                             {"memory_bytes_per_s", result.peaks.memory_bytes_per_s},
                             {"multiply_adds_per_s", result.peaks.multiply_adds_per_s},
                             {"byte_multiply_adds_per_s", result.peaks.byte_multiply_adds_per_s},
                             {"tensor_multiply_adds_per_s", result.peaks.tensor_multiply_adds_per_s},
                             {"model", std::filesystem::path(runtime.path).filename().string()},
                             {"texts_equal", result.texts_equal},
                             {"compiler", kCompiler},
                             {"summary", true}};
  out << json::serialize(summary) << '\n';
}

void print_peaks(const ops::Peaks& peaks) {
  fmt::print(
      stderr,
      "peaks    {:.1f} GB/s memory, {:.0f} GB/s private caches; G multiply-adds/s: {:.0f} attention, {:.0f} with "
      "a flat item's rows, {:.0f} byte products, {:.0f} tensor products (0: not measured)\n\n",
      peaks.memory_bytes_per_s / 1e9, peaks.cache_bytes_per_s / 1e9, peaks.multiply_adds_per_s / 1e9,
      peaks.multiply_adds_flat_per_s / 1e9, peaks.byte_multiply_adds_per_s / 1e9,
      peaks.tensor_multiply_adds_per_s / 1e9);
}

Status bench_step(const StepBenchOptions& options) {
  if (options.shared_tokens + options.prompt_tokens == 0) {
    return error(ErrorCode::kInvalidArgument,
                 "--shared-tokens 0 and --prompt-tokens 0 leave no prompt; give at least one token");
  }
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(options.json));
  HEADWATER_ASSIGN_OR_RETURN(TimedRuntime timed, load_timed(options.runtime));
  Runtime& runtime = timed.runtime;
  StepBenchResult result;
  HEADWATER_RETURN_IF_ERROR(create_arms(options, runtime, *timed.timer, result));
  print_settings(runtime, result.arms.front().engine());
  print_peaks(result.peaks);
  HEADWATER_RETURN_IF_ERROR(run_scenario(options, runtime, result));
  if (output.table != nullptr) print_tables(options, result, *output.table);
  if (output.json != nullptr) write_lines(options, runtime, result, *output.json);
  HEADWATER_RETURN_IF_ERROR(output.close(options.json));
  if (!result.texts_equal && result.promises_equal)
    return error(ErrorCode::kInternal, "the texts of the arms or repetitions differ");
  for (const StepArm& arm : result.arms) HEADWATER_RETURN_IF_ERROR(arm.verdict(options.shared_tokens));
  return {};
}

}  // namespace

void add_bench_step(CLI::App& bench, std::function<Status()>& run) {
  auto o = std::make_shared<StepBenchOptions>();
  CLI::App* c = bench.add_subcommand("step", "chats decoding together: tokens/s, and where a step's time goes");
  c->add_option("--batch", o->batch, "chats")->check(CLI::Range(1, 1024))->capture_default_str();
  c->add_option("--shared-tokens", o->shared_tokens, "prompt tokens that all chats have in common")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  c->add_option("--prompt-tokens", o->prompt_tokens, "prompt tokens of each chat's own")
      ->check(CLI::Range(0, 1 << 20))
      ->capture_default_str();
  c->add_option("--max-tokens", o->tokens_max, "tokens each chat decodes")
      ->check(CLI::Range(2, 1 << 20))
      ->capture_default_str();
  c->add_option("--reps", o->repetitions, "decodes of the scenario; prompts are computed once")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  c->add_option("--arms", o->arms, "engines in turn, as auto,off (default: --shared-prefix)")->delimiter(',');
  c->add_flag("--prefill", o->prefill, "the profile of the prompts' steps as well");
  c->add_flag("--inject-fault", o->inject_fault, "swap a page of the first arm: must fail");
  c->add_option("--json", o->json, "JSON lines to this file; - for stdout");
  add_runtime_options(*c, o->runtime);
  add_engine_options(*c, o->engine);
  c->get_option("--kv-cache-memory")->description("KV pool, e.g. 2G (default: what the scenario needs)");
  c->callback([o, &run] { run = [o] { return bench_step(*o); }; });
}

}  // namespace headwater::apps
