// The main job in one minute: 18 chats, 16 of them behind one long prompt and 6 of those behind a second one, decoded
// twice side by side: with the shared prefix attended once, and with sharing off. Two engines, two KV pools, one set of
// weights; their steps alternate, so both arms meet the same machine.
#include <unistd.h>

#include "apps/answers.h"
#include "apps/commands.h"
#include "apps/demo_report.h"
#include "apps/demo_texts.h"
#include "bench/timed_backend.h"

namespace headwater::apps {
namespace {

struct DemoOptions {
  RuntimeOptions runtime;
  uint32_t tokens = 64;
  std::string json;
  bool inject_fault = false;
};

Result<std::vector<PromptRequest>> demo_requests(const Runtime& runtime, uint32_t tokens) {
  if (runtime.chat_template == nullptr) {
    return error(ErrorCode::kUnsupported, "the demo needs a model with a chat template; {} has none", runtime.path);
  }
  std::vector<PromptRequest> prompts;
  for (const DemoChat& chat : demo_chats()) {
    std::string question(chat.question);
    if (!chat.document.empty()) question = std::string(chat.document) + "\n\n" + question;
    PromptRequest& prompt = prompts.emplace_back();
    prompt.id = std::string(chat.question);
    const text::Message messages[] = {{"system", std::string(chat.system)}, {"user", question}};
    HEADWATER_ASSIGN_OR_RETURN(prompt.request.prompt, runtime.chat_template->encode(*runtime.tokenizer, messages, {}));
    prompt.request.sampling.tokens_max = tokens;
    prompt.request.sampling.temperature = 0;
    prompt.request.sampling.ignore_stop_ids = true;  // both arms do the same work to the end
  }
  return prompts;
}

// One side of the comparison.
class Arm {
 public:
  Arm(Runtime& runtime, const bench::TimedBackend& timer, EngineHandle handle)
      : timer_(timer), handle_(std::move(handle)), collector_(*runtime.tokenizer, *handle_.engine) {}

  Status submit(std::span<const PromptRequest> prompts) {
    for (const PromptRequest& prompt : prompts) HEADWATER_RETURN_IF_ERROR(collector_.submit(prompt));
    chats_ = prompts.size();
    return {};
  }

  Status step() {
    const int64_t begin = clock_.now_ns();
    const int64_t attention_begin = timer_.attention_nanoseconds();
    auto worked = handle_.engine->step();
    if (!worked) return worked.status();
    const int64_t took = clock_.now_ns() - begin;
    const size_t tokens_before = report_.tokens;
    const uint64_t computed = handle_.engine->metrics().tokens_computed.value() - computed_before_;
    computed_before_ += computed;
    collector_.collect(nullptr);
    report_.tokens = 0;
    for (const Answer& answer : collector_.answers()) report_.tokens += answer.token_ids.size();
    const bool steady = report_.tokens - tokens_before == chats_ && computed == chats_;
    report_.add_step(handle_.engine->last_outcome(), took, timer_.attention_nanoseconds() - attention_begin, steady);
    return {};
  }

  bool done() const { return collector_.done(); }
  const std::vector<Answer>& answers() const { return collector_.answers(); }
  engine::Engine& engine() { return *handle_.engine; }
  const DemoArmReport& report() const { return report_; }

 private:
  const bench::TimedBackend& timer_;
  EngineHandle handle_;
  AnswerCollector collector_;
  SystemClock clock_;
  size_t chats_ = 0;
  uint64_t computed_before_ = 0;
  DemoArmReport report_;
};

// On a terminal one line that changes; elsewhere a line for every eighth of the work. `printed`: tokens at the last line.
void show_progress(const Arm& shared, const Arm& flat, size_t tokens_total, bool terminal, bool last, size_t& printed) {
  const size_t done = shared.report().tokens + flat.report().tokens;
  if (!terminal && !last && done < printed + tokens_total / 4) return;
  printed = done;
  fmt::print(stderr, "{}  auto {:4}/{} tokens, off {:4}/{} tokens; {} attended once by {} chats, depth {}   {}",
             terminal ? "\r" : "", shared.report().tokens, tokens_total, flat.report().tokens, tokens_total,
             fmt::format("{} pages", shared.report().best.shared_pages), shared.report().best.members,
             shared.report().best.depth, terminal && !last ? "" : "\n");
}

Result<Arm> create_arm(Runtime& runtime, const bench::TimedBackend& timer, attention::Sharing sharing, uint64_t tokens,
                       bool fault) {
  engine::EngineConfig config;
  config.sequences_max = 32;
  config.attention.sharing = sharing;
  config.inject_page_fault = fault;
  config.run_ahead = false;  // the arms take turns on one back end
  config.kv_bytes = runtime.model->shape().kv_shape(config.page_size, 1, config.kv_dtype).bytes_token_layer() *
                    runtime.model->shape().layers * tokens;
  HEADWATER_ASSIGN_OR_RETURN(EngineHandle handle, create_engine(runtime, config));
  return Arm(runtime, timer, std::move(handle));
}

Status demo(const DemoOptions& options) {
  HEADWATER_ASSIGN_OR_RETURN(TimedRuntime timed, load_timed(options.runtime));
  Runtime& runtime = timed.runtime;
  HEADWATER_ASSIGN_OR_RETURN(const auto prompts, demo_requests(runtime, options.tokens));
  HEADWATER_ASSIGN_OR_RETURN(const ops::Peaks peaks, runtime.backend->measure_peaks(runtime.model->shape().q_heads /
                                                                                    runtime.model->shape().kv_heads));
  const uint64_t pool_tokens =
      8192 + prompts.size() * (options.tokens + 128);  // prompts with their prefixes once, answers
  HEADWATER_ASSIGN_OR_RETURN(
      Arm shared, create_arm(runtime, *timed.timer, attention::Sharing::kAuto, pool_tokens, options.inject_fault));
  HEADWATER_ASSIGN_OR_RETURN(Arm flat, create_arm(runtime, *timed.timer, attention::Sharing::kOff, pool_tokens, false));
  const bool quiet = options.json == "-";
  if (!quiet) print_settings(runtime, shared.engine());
  HEADWATER_RETURN_IF_ERROR(shared.submit(prompts));
  HEADWATER_RETURN_IF_ERROR(flat.submit(prompts));

  const bool terminal = isatty(STDERR_FILENO) != 0;
  const size_t tokens_total = prompts.size() * options.tokens;
  size_t printed = 0;
  while (!shared.done() || !flat.done()) {
    if (!shared.done()) HEADWATER_RETURN_IF_ERROR(shared.step());
    if (!flat.done()) HEADWATER_RETURN_IF_ERROR(flat.step());
    if (!quiet) show_progress(shared, flat, tokens_total, terminal, shared.done() && flat.done(), printed);
  }

  const DemoReport report =
      make_report(runtime, peaks, shared.report(), flat.report(), shared.answers(), flat.answers());
  if (!quiet) print_report(runtime, report, shared.answers());
  if (!options.json.empty()) HEADWATER_RETURN_IF_ERROR(write_report(report, options.json));
  return verdict(report);
}

}  // namespace

void add_demo(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* command =
      app.add_subcommand("demo", "many chats behind one prompt, with the prefix attended once and without");
  command->add_option("--tokens", options->tokens, "tokens each chat decodes")
      ->check(CLI::Range(8, 1024))
      ->capture_default_str();
  command->add_option("--json", options->json, "write the summary as a JSON line to this file; - for stdout");
  command->add_flag("--inject-fault", options->inject_fault,
                    "swap one page of one chat in the shared arm: the check must fail");
  add_runtime_options(*command, options->runtime);
  command->callback([options, &run] { run = [options] { return demo(*options); }; });
}

}  // namespace headwater::apps
