#include "apps/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>

namespace headwater::apps {
namespace {

constexpr const char* kDefaultModel = "models/SmolLM2-135M-Instruct.Q4_1.gguf";

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
  return text;
}

}  // namespace

void add_costs_option(CLI::App& app, std::string& costs) {
  app.add_option("--costs", costs, "attention's: auto (what `headwater tune` wrote), none or a file")
      ->envname("HEADWATER_COSTS")
      ->capture_default_str();
}

void add_runtime_options(CLI::App& app, RuntimeOptions& options) {
  app.add_option("-m,--model", options.model,
                 "GGUF file or folder of safetensors (default: the fetched SmolLM2-135M-Instruct)")
      ->envname("HEADWATER_MODEL");
  app.add_option("--load-format", options.load_format, "auto, or dummy: random weights for a folder's config.json")
      ->envname("HEADWATER_LOAD_FORMAT")
      ->check(CLI::IsMember({"auto", "dummy"}))
      ->capture_default_str();
  app.add_option("--dummy-dtype", options.dummy_dtype, "of dummy weights: bf16, q8_0, q4_0 or q4_1")
      ->envname("HEADWATER_DUMMY_DTYPE")
      ->capture_default_str();
  app.add_option("--backend", options.backend, "auto, cuda, cpu or reference")
      ->envname("HEADWATER_BACKEND")
      ->capture_default_str();
  app.add_option("-t,--threads", options.threads, "worker threads (0: all cores)")
      ->envname("HEADWATER_THREADS")
      ->capture_default_str();
  app.add_flag("--sharing-invariant", options.invariant, "cuda: the same bits whatever is shared or batched; slower")
      ->envname("HEADWATER_SHARING_INVARIANT");
  app.add_option("--gpu-memory-utilization", options.gpu_memory_utilization,
                 "cuda: share of its memory to use (default: 0.9)")
      ->envname("HEADWATER_GPU_MEMORY_UTILIZATION")
      ->check(CLI::Range(0.01, 1.0));
  add_costs_option(app, options.costs);
  app.add_option("--chat-template", options.chat_template, "Jinja file to use instead of the model's")
      ->envname("HEADWATER_CHAT_TEMPLATE");
  app.add_option("--log-level", options.log_level, "trace, debug, info, warn, error or off")
      ->envname("HEADWATER_LOG_LEVEL")
      ->capture_default_str();
}

ops::BackendConfig backend_config(const RuntimeOptions& options) {
  ops::BackendConfig config{.threads = options.threads, .invariant = options.invariant};
  config.memory_share = options.gpu_memory_utilization.value_or(config.memory_share);
  return config;
}

void add_sampling_options(CLI::App& app, engine::SamplingParams& sampling) {
  app.add_option("-n,--max-tokens", sampling.tokens_max, "tokens of an answer, at most")
      ->envname("HEADWATER_MAX_TOKENS")
      ->check(CLI::Range(1u, UINT32_MAX))
      ->capture_default_str();
  app.add_option("--temperature", sampling.temperature, "0: always the likeliest token")
      ->envname("HEADWATER_TEMPERATURE")
      ->check(CLI::Range(0.0, 2.0))
      ->capture_default_str();
  app.add_option("--top-k", sampling.top_k, "of the k likeliest (0: all)")
      ->envname("HEADWATER_TOP_K")
      ->capture_default_str();
  app.add_option("--top-p", sampling.top_p, "of the likeliest that sum to p")
      ->envname("HEADWATER_TOP_P")
      ->check(CLI::Range(1e-9, 1.0))
      ->capture_default_str();
  app.add_option("--seed", sampling.seed, "of the draws")->envname("HEADWATER_SEED")->capture_default_str();
}

void add_engine_options(CLI::App& app, EngineOptions& options) {
  app.add_option("-c,--max-model-len", options.max_model_len, "tokens of a sequence (0: the model's)")
      ->envname("HEADWATER_MAX_MODEL_LEN")
      ->capture_default_str();
  app.add_option("--max-num-seqs", options.max_num_seqs, "sequences running at once")
      ->envname("HEADWATER_MAX_NUM_SEQS")
      ->capture_default_str();
  app.add_option("--max-num-batched-tokens", options.max_num_batched_tokens, "token budget of a step")
      ->envname("HEADWATER_MAX_NUM_BATCHED_TOKENS")
      ->capture_default_str();
  app.add_option("--kv-cache-memory", options.kv_cache_memory,
                 "KV pool, e.g. 2G (default: a quarter of free memory; cuda: what is left)")
      ->envname("HEADWATER_KV_CACHE_MEMORY");
  app.add_option("--block-size", options.block_size, "tokens of a KV page")
      ->envname("HEADWATER_BLOCK_SIZE")
      ->capture_default_str();
  app.add_option("--kv-cache-dtype", options.kv_cache_dtype, "bf16, f16, f32 or fp8")
      ->envname("HEADWATER_KV_CACHE_DTYPE")
      ->capture_default_str();
  app.add_option("--shared-prefix", options.shared_prefix, "auto, off or always")
      ->envname("HEADWATER_SHARED_PREFIX")
      ->capture_default_str();
  app.add_option("--shared-prefix-min-pages", options.shared_prefix_min_pages, "shortest shared run (0: what pays)")
      ->envname("HEADWATER_SHARED_PREFIX_MIN_PAGES")
      ->capture_default_str();
  app.add_option("--shared-prefix-min-members", options.shared_prefix_min_members, "fewest sharers")
      ->envname("HEADWATER_SHARED_PREFIX_MIN_MEMBERS")
      ->capture_default_str();
}

Result<uint64_t> parse_bytes(const std::string& text) {
  uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit = lower(std::string(end, text.data() + text.size()));
  int shift = -1;
  for (const auto& [names, bits] :
       {std::pair{"|b|", 0}, {"k|kb|kib", 10}, {"m|mb|mib", 20}, {"g|gb|gib", 30}, {"t|tb|tib", 40}}) {
    if (("|" + std::string(names) + "|").find("|" + unit + "|") != std::string::npos) shift = bits;
  }
  if (status != std::errc() || shift < 0 || (shift > 0 && number >> (64 - shift) != 0)) {
    return error(ErrorCode::kInvalidArgument,
                 "'{}' is not a size; write bytes or a number with K, M, G or T, such as 2G", text);
  }
  return number << shift;
}

Result<DType> parse_weight_type(const std::string& text) {
  std::string name = text;
  std::ranges::transform(name, name.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  if (const std::optional<DType> dtype = dtype_named(name)) return *dtype;
  return error(ErrorCode::kInvalidArgument, "the weight type '{}' is unknown; use bf16, q8_0, q4_0 or q4_1", text);
}

Result<DType> parse_kv_dtype(const std::string& text) {
  const std::string name = lower(text);
  if (name == "bf16" || name == "bfloat16" || name == "auto") return DType::kBF16;
  if (name == "f16" || name == "float16") return DType::kF16;
  if (name == "f32" || name == "float32") return DType::kF32;
  if (name == "f8" || name == "fp8" || name == "f8_e4m3" || name == "fp8_e4m3") return DType::kF8E4M3;
  return error(ErrorCode::kInvalidArgument, "--kv-cache-dtype '{}' is unknown; use bf16, f16, f32 or fp8", text);
}

Result<engine::EngineConfig> engine_config(const EngineOptions& options) {
  engine::EngineConfig config;
  config.context_max = options.max_model_len;
  config.sequences_max = options.max_num_seqs;
  config.step_tokens_max = options.max_num_batched_tokens;
  config.page_size = options.block_size;
  if (!options.kv_cache_memory.empty()) {
    HEADWATER_ASSIGN_OR_RETURN(config.kv_bytes, parse_bytes(options.kv_cache_memory));
  }
  HEADWATER_ASSIGN_OR_RETURN(config.kv_dtype, parse_kv_dtype(options.kv_cache_dtype));
  HEADWATER_ASSIGN_OR_RETURN(config.attention.sharing, attention::parse_sharing(options.shared_prefix));
  config.attention.shared_pages_min = options.shared_prefix_min_pages;
  config.attention.shared_members_min = options.shared_prefix_min_members;
  for (const auto& [flag, value, low, high] :
       {std::tuple{"--max-num-seqs", options.max_num_seqs, 1u, 4096u},
        {"--max-num-batched-tokens", options.max_num_batched_tokens, 1u, 65536u},
        {"--block-size", options.block_size, 1u, 1024u},
        {"--shared-prefix-min-members", options.shared_prefix_min_members, 2u, 4096u}}) {
    if (value < low || value > high) {
      return error(ErrorCode::kInvalidArgument, "{} {} is out of range; use {} to {}", flag, value, low, high);
    }
  }
  return config;
}

Result<std::string> model_path(const RuntimeOptions& options) {
  if (!options.model.empty()) return options.model;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  for (const auto& folder : {std::filesystem::path("."), program / ".." / ".."}) {
    if (std::filesystem::exists(folder / kDefaultModel, ignored))
      return (folder / kDefaultModel).lexically_normal().string();
  }
  return error(ErrorCode::kNotFound,
               "{} is not there; fetch it with tools/fetch_model.sh, or name a GGUF file with --model", kDefaultModel);
}

}  // namespace headwater::apps
