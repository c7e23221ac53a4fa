// Headwater as a library: load a model, answer two questions behind one system prompt, print the answers.
#include <cstdio>
#include <map>

#include "backend/registry/registry.h"
#include "engine/engine.h"
#include "model/model.h"
#include "text/text.h"

using namespace headwater;

Status run(const char* path) {
  HEADWATER_ASSIGN_OR_RETURN(const model::Checkpoint checkpoint, model::Checkpoint::open(path));
  HEADWATER_ASSIGN_OR_RETURN(const auto backend, backend::create_backend("auto", {}));
  HEADWATER_ASSIGN_OR_RETURN(const auto model, model::load_model(checkpoint, *backend));
  HEADWATER_ASSIGN_OR_RETURN(const auto decoder, model->create_decoder());
  HEADWATER_ASSIGN_OR_RETURN(const text::Tokenizer tokenizer, text::Tokenizer::create(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(const text::ChatTemplate chat, text::ChatTemplate::create(checkpoint, tokenizer));
  engine::EngineConfig config;
  config.kv_bytes = 64u << 20;
  HEADWATER_ASSIGN_OR_RETURN(const auto engine, engine::Engine::create(config, *decoder, *backend));

  for (const char* question : {"What is the capital of France?", "Name a river in Italy."}) {
    const text::Message messages[] = {{"system", "You answer in one short sentence."}, {"user", question}};
    engine::Request request;
    HEADWATER_ASSIGN_OR_RETURN(request.prompt, chat.encode(tokenizer, messages, {}));
    request.sampling.temperature = 0;
    request.sampling.tokens_max = 32;
    request.sampling.stop_ids = tokenizer.end_of_generation();
    HEADWATER_ASSIGN_OR_RETURN([[maybe_unused]] const engine::RequestId id, engine->submit(std::move(request)));
  }
  std::map<engine::RequestId, std::vector<TokenId>> answers;
  for (bool busy = true; busy;) {
    HEADWATER_ASSIGN_OR_RETURN(busy, engine->step());
    for (engine::Emission emission; engine->poll_any({&emission, 1}) == 1;)
      answers[emission.request].push_back(emission.token);
  }
  for (const auto& [id, tokens] : answers) std::printf("%s\n", tokenizer.decode(tokens, true).c_str());
  return {};
}

int main(int argc, char** argv) {
  const Status status = run(argc > 1 ? argv[1] : "models/SmolLM2-135M-Instruct.Q4_1.gguf");
  if (!status) std::fprintf(stderr, "%s\n", status.message().c_str());
  return status ? 0 : 1;
}
