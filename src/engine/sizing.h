// The numbers an engine is built with, from its configuration, the model and the free memory. Pure.
#pragma once

#include "engine/engine.h"

namespace headwater::engine {

struct Sizing {
  EngineConfig config;  // defaults filled in
  ops::KvShape kv;      // of the pool
  ops::StepLimits limits;
  uint32_t sequence_tokens_max = 0;  // the smaller of context_max and what the pool holds
};

// memory: of the back end, now.
Result<Sizing> size_engine(const EngineConfig& config, const model::ModelShape& model, const ops::BackendInfo& backend,
                           const ops::PoolMemory& memory);

// Everything that can be wrong with a request at submit(), and what can never fit.
Status validate(const Request& request, const Sizing& sizing, uint32_t vocabulary);

}  // namespace headwater::engine
