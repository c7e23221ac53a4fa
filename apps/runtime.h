// A model loaded and ready: file, back end, weights, tokenizer, chat template. Shared by every command that runs one.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "apps/options.h"
#include "model/model.h"
#include "text/text.h"

namespace headwater::apps {

struct Runtime {
  std::string path;
  std::unique_ptr<model::GgufFile> file;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // null when the file has none

  static Result<Runtime> load(const RuntimeOptions& options);  // shows a progress bar on a terminal
};

// One engine with its own activations; the weights are the runtime's.
struct EngineHandle {
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<engine::Engine> engine;
};
Result<EngineHandle> create_engine(Runtime& runtime, const engine::EngineConfig& config);

// The settings in force, a few lines on standard error.
void print_settings(const Runtime& runtime, const engine::Engine& engine);

}  // namespace headwater::apps
