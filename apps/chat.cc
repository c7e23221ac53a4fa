// A conversation in the terminal. Every turn sends the whole history; its pages are still in the prefix tree, so only
// the new message is computed.
#include <unistd.h>

#include <iostream>

#include "apps/answers.h"
#include "apps/commands.h"
#include "apps/config_file.h"

namespace headwater::apps {
namespace {

struct ChatOptions {
  RuntimeOptions runtime;
  EngineOptions engine;
  engine::SamplingParams sampling;
  std::string system;
};

// One turn: returns the assistant's text, streamed to standard output as it comes.
Result<Answer> answer_turn(Runtime& runtime, engine::Engine& engine, const ChatOptions& options,
                           std::span<const text::Message> history) {
  PromptRequest prompt{"chat", {}, {}};
  prompt.request.sampling = options.sampling;
  prompt.request.sampling.stop_ids = runtime.tokenizer->end_of_generation();
  HEADWATER_ASSIGN_OR_RETURN(prompt.request.prompt, runtime.chat_template->encode(*runtime.tokenizer, history, {}));
  const auto show = [](size_t, std::string_view text) { std::cout << text << std::flush; };
  HEADWATER_ASSIGN_OR_RETURN(const std::vector<Answer> answers,
                             run_to_end(*runtime.tokenizer, engine, {&prompt, 1}, show));
  std::cout << std::endl;
  return answers.front();
}

Status chat(const ChatOptions& options) {
  HEADWATER_ASSIGN_OR_RETURN(const engine::EngineConfig config, engine_config(options.engine));
  HEADWATER_ASSIGN_OR_RETURN(Runtime runtime, Runtime::load(options.runtime));
  if (runtime.chat_template == nullptr) {
    return error(ErrorCode::kUnsupported, "{} has no chat template; use headwater generate --raw", runtime.path);
  }
  HEADWATER_ASSIGN_OR_RETURN(EngineHandle handle, create_engine(runtime, config));
  print_settings(runtime, *handle.engine);
  const bool terminal = isatty(STDIN_FILENO) != 0;
  if (terminal) fmt::print(stderr, "Type a message; /clear starts over, /quit or Ctrl-D ends.\n");

  std::vector<text::Message> history;
  const auto start_over = [&] {
    history.clear();
    if (!options.system.empty()) history.push_back({"system", options.system});
  };
  start_over();
  for (std::string line;;) {
    if (terminal) fmt::print(stderr, "\n> ");
    if (!std::getline(std::cin, line) || line == "/quit") return {};
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    if (line == "/clear") {
      start_over();
      continue;
    }
    history.push_back({"user", line});
    auto answer = answer_turn(runtime, *handle.engine, options, history);
    if (!answer) {
      history.pop_back();
      if (!terminal) return answer.status();
      fmt::print(stderr, "headwater: {}\n", answer.status().message());
      continue;
    }
    fmt::print(stderr, "[{} prompt tokens, {} from the prefix cache, {} generated]\n", answer->prompt_tokens,
               answer->cached_tokens, answer->token_ids.size());
    history.push_back({"assistant", answer->text});
  }
}

}  // namespace

void add_chat(CLI::App& app, std::function<Status()>& run) {
  auto options = std::make_shared<ChatOptions>();
  options->sampling.tokens_max = 512;
  options->sampling.temperature = 0;
  CLI::App* command = app.add_subcommand("chat", "talk to the model in the terminal");
  command->add_option("--system", options->system, "system message");
  add_sampling_options(*command, options->sampling);
  add_runtime_options(*command, options->runtime);
  add_engine_options(*command, options->engine);
  add_config_option(*command);
  command->callback([options, &run] { run = [options] { return chat(*options); }; });
}

}  // namespace headwater::apps
