// The default model as the tests use it: the file that `make setup` fetches, loaded on one back end.
#pragma once

#include <memory>
#include <string>

#include "backend/registry/registry.h"
#include "model/model.h"

namespace headwater::testing {

inline std::string default_model_path() {
  return HEADWATER_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
}

struct LoadedModel {  // destroyed from the last to the first
  std::unique_ptr<model::Checkpoint> checkpoint;
  std::unique_ptr<ops::Backend> backend;
  std::unique_ptr<model::Model> model;
};

inline Result<LoadedModel> load_default_model(std::string_view backend, const ops::BackendConfig& config = {}) {
  LoadedModel loaded;
  HEADWATER_ASSIGN_OR_RETURN(auto checkpoint, model::Checkpoint::open(default_model_path()));
  loaded.checkpoint = std::make_unique<model::Checkpoint>(std::move(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(loaded.backend, backend::create_backend(backend, config));
  HEADWATER_ASSIGN_OR_RETURN(loaded.model, model::load_model(*loaded.checkpoint, *loaded.backend));
  return loaded;
}

}  // namespace headwater::testing
