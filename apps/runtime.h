// A model loaded and ready: file, back end, weights, tokenizer, chat template. Shared by every command that runs one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "apps/options.h"
#include "bench/timed_backend.h"
#include "model/model.h"
#include "text/text.h"

namespace headwater::apps {

// What is wrong whatever the model: kInvalidArgument.
Status check_options(const RuntimeOptions& options);

// Every token has a row of the embedding. is_of_bytes: the tokenizer is Tokenizer::of_bytes(), for want of one.
Status check_vocabulary(const text::Tokenizer& tokenizer, const model::ModelShape& shape, bool is_of_bytes = false);

struct Runtime {
  std::string path;
  std::unique_ptr<model::Checkpoint> checkpoint;
  std::unique_ptr<ops::Backend> backend;
  std::string passed_over;  // the back end that auto would have preferred, and why it is not used; or empty
  std::string costs;        // where the back end's attention costs come from
  std::unique_ptr<model::Model> model;
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::ChatTemplate> chat_template;  // null when the file has none

  using WrapBackend = std::function<std::unique_ptr<ops::Backend>(std::unique_ptr<ops::Backend>)>;

  // Shows a progress bar on a terminal. wrap: puts a decorator around the back end before anything is loaded; may be
  // null.
  static Result<Runtime> load(const RuntimeOptions& options, const WrapBackend& wrap = nullptr);
};

// A runtime whose back end adds up where its time goes.
struct TimedRuntime {
  Runtime runtime;
  bench::TimedBackend* timer;  // the runtime's
};
Result<TimedRuntime> load_timed(const RuntimeOptions& options);

// One engine with its own activations; the weights are the runtime's.
struct EngineHandle {
  std::unique_ptr<model::Decoder> decoder;
  std::unique_ptr<engine::Engine> engine;
};
Result<EngineHandle> create_engine(Runtime& runtime, const engine::EngineConfig& config);

// The settings in force, a few lines on standard error.
void print_settings(const Runtime& runtime, const engine::Engine& engine);

}  // namespace headwater::apps
