// Flags that every command shares, their HEADWATER_* twins, and the typed configuration made from them.
// Precedence: flag, then environment, then default. Nothing else reads the environment.
#pragma once

#include <CLI/App.hpp>
#include <optional>
#include <string>

#include "core/core.h"
#include "engine/engine.h"
#include "ops/backend.h"

namespace headwater::apps {

struct RuntimeOptions {
  std::string model;                 // "": the default model
  std::string load_format = "auto";  // or dummy: random weights of the model's config.json
  std::string dummy_dtype = "bf16";  // of random weights
  std::string backend = "auto";
  uint32_t threads = 0;                          // 0: the cores this process may use
  std::string costs = "auto";                    // auto, none or a file of `headwater tune`
  bool invariant = false;                        // ops::BackendConfig
  std::optional<double> gpu_memory_utilization;  // none: what ops::BackendConfig has
  std::string chat_template;                     // a Jinja file; "": the model's own
  std::string log_level = "warn";
};

ops::BackendConfig backend_config(const RuntimeOptions& options);

struct EngineOptions {
  uint32_t max_model_len = 0;  // 0: the model's
  uint32_t max_num_seqs = 64;
  uint32_t max_num_batched_tokens = 512;
  std::string kv_cache_memory;  // "2G"; "": a share of free memory
  uint32_t block_size = kv::kPageSizeDefault;
  std::string kv_cache_dtype = "bf16";
  std::string shared_prefix = "auto";
  uint32_t shared_prefix_min_pages = 0;
  uint32_t shared_prefix_min_members = 2;
};

void add_costs_option(CLI::App& app, std::string& costs);
void add_runtime_options(CLI::App& app, RuntimeOptions& options);
void add_sampling_options(CLI::App& app, engine::SamplingParams& sampling);
void add_engine_options(CLI::App& app, EngineOptions& options);

Result<engine::EngineConfig> engine_config(const EngineOptions& options);  // checks every value; errors name the flag
Result<uint64_t> parse_bytes(const std::string& text);                     // 1048576, 512K, 300M, 2G, 2GiB
Result<DType> parse_weight_type(const std::string& text);                  // q8_0 as Q8_0; any type that has a name
Result<DType> parse_kv_dtype(const std::string& text);                     // f32, f16, bf16, fp8
Result<std::string> model_path(const RuntimeOptions& options);             // the default model is looked for in models/

}  // namespace headwater::apps
