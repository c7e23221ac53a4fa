#include "apps/serve_engine_arm.h"

#include "apps/answers.h"
#include "server/metrics_page.h"

namespace headwater::apps {
namespace {

namespace serve = bench::serve;

double seconds_between(int64_t begin_ns, int64_t end_ns) {
  return static_cast<double>(end_ns - begin_ns) * 1e-9;
}

// One level: as many requests open as there are clients, the next submitted in the step after one ended.
class EngineLevel {
 public:
  EngineLevel(Runtime& runtime, engine::Engine& engine, const serve::WorkloadShape& workload,
              const std::vector<serve::Prompt>& prompts)
      : engine_(engine), workload_(workload), prompts_(prompts), collector_(*runtime.tokenizer, engine) {
    result_.answers.resize(prompts.size());
  }

  Result<serve::LevelResult> run(uint32_t concurrency, const serve::Progress& progress) {
    const int64_t begin = clock_.now_ns();
    const auto on_text = [this](size_t index, std::string_view) {
      result_.answers[index].chunk_s.push_back(seconds_between(start_ns_[index], clock_.now_ns()));
      ++chunks_;
    };
    for (size_t ended = 0; ended < prompts_.size(); ended = take_ended()) {
      while (start_ns_.size() < std::min(prompts_.size(), ended + concurrency)) {
        HEADWATER_RETURN_IF_ERROR(submit_next());
      }
      const Result<bool> worked = engine_.step();
      if (!worked) return worked.status();
      check(*worked, "the engine is idle while answers are open");
      collector_.collect(on_text);
      if (progress) progress(ended, prompts_.size(), chunks_);
    }
    result_.seconds = seconds_between(begin, clock_.now_ns());
    return std::move(result_);
  }

 private:
  Status submit_next() {
    PromptRequest prompt;
    prompt.id = std::to_string(start_ns_.size());
    prompt.request.prompt = prompts_[start_ns_.size()].ids;
    prompt.request.sampling.tokens_max = workload_.tokens_max;
    prompt.request.sampling.temperature = 0;
    prompt.request.sampling.ignore_stop_ids = true;
    start_ns_.push_back(clock_.now_ns());
    return collector_.submit(prompt);
  }

  // How many answers are complete.
  size_t take_ended() {
    size_t count = 0;
    for (size_t i = 0; i < collector_.answers().size(); ++i) {
      const Answer& from = collector_.answers()[i];
      serve::Answer& to = result_.answers[i];
      if (from.finish == engine::FinishReason::kNone) continue;
      ++count;
      if (to.end == serve::Answer::End::kComplete) continue;
      to.end = serve::Answer::End::kComplete;
      to.seconds = seconds_between(start_ns_[i], clock_.now_ns());
      to.prompt_tokens = from.prompt_tokens;
      to.cached_tokens = from.cached_tokens;
      to.completion_tokens = from.token_ids.size();
      to.text = from.text;
    }
    return count;
  }

  engine::Engine& engine_;
  const serve::WorkloadShape& workload_;
  const std::vector<serve::Prompt>& prompts_;
  AnswerCollector collector_;
  SystemClock clock_;
  std::vector<int64_t> start_ns_;  // of the requests submitted so far
  uint64_t chunks_ = 0;
  serve::LevelResult result_;
};

}  // namespace

Result<std::unique_ptr<ServeEngineArm>> ServeEngineArm::create(const RuntimeOptions& runtime,
                                                               const EngineOptions& engine) {
  std::unique_ptr<ServeEngineArm> arm(new ServeEngineArm());
  HEADWATER_ASSIGN_OR_RETURN(arm->runtime_, Runtime::load(runtime));
  HEADWATER_ASSIGN_OR_RETURN(const engine::EngineConfig config, engine_config(engine));
  HEADWATER_ASSIGN_OR_RETURN(arm->handle_, create_engine(arm->runtime_, config));
  return arm;
}

Result<serve::LevelResult> ServeEngineArm::run(const serve::WorkloadShape& workload,
                                               const std::vector<serve::Prompt>& prompts, const serve::LoadShape& load,
                                               const serve::Progress& progress) {
  return EngineLevel(runtime_, *handle_.engine, workload, prompts).run(load.concurrency, progress);
}

Result<std::optional<serve::Exposition>> ServeEngineArm::counters() {
  const server::ServerMetrics none;
  const std::string page = server::metrics_page({.model_name = name_}, handle_.engine.get(), none);
  return std::optional(serve::Exposition::parse(page));
}

}  // namespace headwater::apps
