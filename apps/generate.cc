#include <algorithm>
#include <iostream>
#include <sstream>

#include "apps/answers.h"
#include "apps/commands.h"
#include "apps/config_file.h"
#include "apps/json_output.h"
#include "apps/prompt_json.h"
#include "apps/text_file.h"

namespace headwater::apps {
namespace {

constexpr size_t kPromptsBytesMax = size_t{256} << 20;

struct GenerateOptions {
  RuntimeOptions runtime;
  EngineOptions engine;
  engine::SamplingParams sampling;
  std::string prompt, system, prompts_file, json;
  uint32_t n = 1;
  bool raw = false;
};

Result<std::vector<PromptRequest>> read_prompts(const GenerateOptions& options, const Runtime& runtime) {
  std::vector<PromptRequest> prompts;
  if (options.prompts_file.empty()) {
    PromptRequest prompt{"0", {}, {}};
    prompt.request.sampling = options.sampling;
    prompt.request.sampling.stop_ids = runtime.tokenizer->end_of_generation();
    prompt.request.n = options.n;
    HEADWATER_ASSIGN_OR_RETURN(prompt.request.prompt,
                               encode_prompt(runtime, options.prompt, options.system, options.raw));
    prompts.push_back(std::move(prompt));
    return prompts;
  }
  HEADWATER_ASSIGN_OR_RETURN(
      std::string text, read_text("--prompts-file", options.prompts_file, "a file of JSON lines", kPromptsBytesMax));
  const server::openai::ServedModel served = served_model(runtime, options.engine.max_model_len);
  std::istringstream in(std::move(text));
  size_t number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    Result<PromptRequest> prompt = parse_prompt_line(line, number, options.sampling, served);
    if (!prompt) {
      return error(prompt.status().code(), "--prompts-file {}, {}", options.prompts_file, prompt.status().message());
    }
    prompts.push_back(std::move(*prompt));
  }
  if (prompts.empty()) return error(ErrorCode::kInvalidArgument, "{} holds no prompt", options.prompts_file);
  return prompts;
}

Status check_finished(std::span<const Answer> answers) {
  const auto failed =
      std::ranges::count(answers, engine::FinishReason::kFailed, [](const Answer& answer) { return answer.finish; });
  if (failed == 0) return {};
  return error(ErrorCode::kInternal, "{} of {} answers failed: the log says why (--log-level warn)", failed,
               answers.size());
}

Status generate(const GenerateOptions& options) {
  if (options.prompt.empty() == options.prompts_file.empty()) {
    return error(ErrorCode::kInvalidArgument, "give either a prompt or --prompts-file; see headwater generate --help");
  }
  JsonOutput output;
  HEADWATER_RETURN_IF_ERROR(output.open(options.json));
  HEADWATER_ASSIGN_OR_RETURN(const engine::EngineConfig config, engine_config(options.engine));
  HEADWATER_ASSIGN_OR_RETURN(Runtime runtime, Runtime::load(options.runtime));
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<PromptRequest> prompts, read_prompts(options, runtime));
  HEADWATER_ASSIGN_OR_RETURN(EngineHandle handle, create_engine(runtime, config));
  print_settings(runtime, *handle.engine);

  const bool stream = options.json.empty() && prompts.size() == 1 && prompts[0].request.n == 1;
  const auto show = [](size_t, std::string_view text) { std::cout << text << std::flush; };
  std::function<void(size_t, std::string_view)> on_text;
  if (stream) on_text = show;
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                             run_to_end(*runtime.tokenizer, *handle.engine, prompts, on_text));
  if (output.json != nullptr) {
    for (const Answer& answer : answers) *output.json << answer_line(answer) << '\n';
    HEADWATER_RETURN_IF_ERROR(output.close(options.json));
  } else if (stream) {
    std::cout << '\n';
  } else {
    for (const Answer& answer : answers) fmt::print("--- {} ({})\n{}\n", answer.id, answer.choice, answer.text);
  }
  return check_finished(answers);
}

}  // namespace

void add_generate(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<GenerateOptions>();
  options->sampling.tokens_max = 128;
  options->sampling.temperature = 0;
  CLI::App* command = app.add_subcommand("generate", "answer one prompt, or a file of prompts as one batch");
  command->add_option("prompt", options->prompt, "the prompt; a user message when the model has a chat template");
  command->add_option("--prompts-file", options->prompts_file,
                      "JSON lines {\"id\", \"prompt\" | \"messages\", \"max_tokens\", ...}; - for stdin");
  command->add_option("--json", options->json, "write answers as JSON lines to this file; - for stdout");
  command->add_option("--system", options->system, "system message in front of the prompt");
  command->add_flag("--raw", options->raw, "no chat template: continue the prompt as it is");
  command->add_option("--choices", options->n, "answers to the prompt")
      ->check(CLI::Range(1, 128))
      ->capture_default_str();
  add_sampling_options(*command, options->sampling);
  add_runtime_options(*command, options->runtime);
  add_engine_options(*command, options->engine);
  add_config_option(*command);
  command->callback([options, &run] { run = [options] { return generate(*options); }; });
}

}  // namespace headwater::apps
