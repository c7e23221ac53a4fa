#include "apps/runtime.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>

#include "apps/costs_file.h"
#include "backend/registry/registry.h"

namespace headwater::apps {
namespace {

void show_progress(float part) {
  constexpr int kWidth = 40;
  const int filled = static_cast<int>(part * kWidth);
  fmt::print(stderr, "\rloading [{:=<{}}{: <{}}] {:3.0f}%{}", "", filled, "", kWidth - filled, part * 100,
             part >= 1.0f ? "\n" : "");
}

// "Q6_K, MXFP4": types of the file's weights that the back end decodes before each product.
std::string types_without_kernel(const Runtime& runtime) {
  std::set<std::string_view> names;
  for (const model::Tensor& tensor : runtime.checkpoint->tensors()) {
    if (!backend::has_kernel(runtime.backend->info().name, tensor.dtype)) names.insert(to_string(tensor.dtype));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

Status check_without_gpu(const RuntimeOptions& options) {
  if (!options.gpu_memory_utilization) return {};
  return error(
      ErrorCode::kInvalidArgument,
      "--gpu-memory-utilization is for GPUs, and here the CPU computes; for its pages use --kv-cache-memory, in "
      "bytes such as 2G");
}

Result<model::Checkpoint> open_checkpoint(const RuntimeOptions& options, const std::string& path) {
  if (options.load_format != "dummy") return model::Checkpoint::open(path);
  HEADWATER_ASSIGN_OR_RETURN(const DType dtype, parse_weight_type(options.dummy_dtype));
  return model::open_with_random_weights(path, dtype);
}

Result<text::ChatTemplate> read_chat_template(const std::string& path, const text::Tokenizer& tokenizer) {
  std::ifstream file(path, std::ios::binary);
  std::string source(text::TemplateLimits().source_bytes + 1,
                     '\0');  // one more than is taken, and no end is waited for
  file.read(source.data(), static_cast<std::streamsize>(source.size()));
  source.resize(static_cast<size_t>(file.gcount()));
  if (source.empty()) return error(ErrorCode::kNotFound, "cannot be read, or is empty");
  return text::ChatTemplate::parse(source, std::string(tokenizer.bytes_of(tokenizer.bos())),
                                   std::string(tokenizer.bytes_of(tokenizer.eos())));
}

// That of a file where one is named, otherwise the model's; null where it has none.
Result<std::unique_ptr<text::ChatTemplate>> open_chat_template(const std::string& path,
                                                               const model::Checkpoint& checkpoint,
                                                               const text::Tokenizer& tokenizer) {
  auto opened = path.empty() ? text::ChatTemplate::create(checkpoint, tokenizer) : read_chat_template(path, tokenizer);
  if (opened) return std::make_unique<text::ChatTemplate>(std::move(opened).value());
  const Status& status = opened.status();
  if (!path.empty()) return error(status.code(), "--chat-template {}: {}", path, status.message());
  if (status.code() == ErrorCode::kNotFound) return std::unique_ptr<text::ChatTemplate>();
  return error(status.code(), "{}; a template that works is given by --chat-template FILE", status.message());
}

}  // namespace

Status check_vocabulary(const text::Tokenizer& tokenizer, const model::ModelShape& shape, bool is_of_bytes) {
  const uint32_t tokens = tokenizer.vocabulary_size(), rows = shape.vocabulary;
  if (tokens <= rows) return {};
  if (is_of_bytes) {
    return error(
        ErrorCode::kInvalidArgument,
        "without a tokenizer.json text is bytes, which are {} tokens, and vocab_size of config.json is {}: raise "
        "it, or put a tokenizer.json beside it",
        tokens, rows);
  }
  return error(ErrorCode::kCorrupt,
               "the tokenizer has {} tokens, the model's embedding only {} rows: take the tokenizer that was "
               "published with these weights",
               tokens, rows);
}

Status check_options(const RuntimeOptions& options) {
  return backend::may_be_gpu(options.backend) ? Status() : check_without_gpu(options);
}

Result<Runtime> Runtime::load(const RuntimeOptions& options, const WrapBackend& wrap) {
  if (!observe::set_log_level(options.log_level.c_str())) {
    return error(ErrorCode::kInvalidArgument, "--log-level '{}' is unknown; use trace, debug, info, warn, error or off",
                 options.log_level);
  }
  Runtime runtime;
  HEADWATER_ASSIGN_OR_RETURN(runtime.path, model_path(options));
  HEADWATER_ASSIGN_OR_RETURN(auto checkpoint, open_checkpoint(options, runtime.path));
  runtime.checkpoint = std::make_unique<model::Checkpoint>(std::move(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(runtime.backend,
                             backend::create_backend(options.backend, backend_config(options), &runtime.passed_over));
  if (!runtime.backend->info().records) HEADWATER_RETURN_IF_ERROR(check_without_gpu(options));
  runtime.costs = use_costs(options.costs, *runtime.backend);
  if (wrap) runtime.backend = wrap(std::move(runtime.backend));
  auto tokenizer = text::Tokenizer::create(*runtime.checkpoint);
  const bool is_of_bytes = options.load_format == "dummy" && tokenizer.status().code() == ErrorCode::kNotFound;
  if (is_of_bytes) tokenizer = text::Tokenizer::of_bytes();
  HEADWATER_RETURN_IF_ERROR(tokenizer.status());
  HEADWATER_ASSIGN_OR_RETURN(const model::ModelShape shape, model::read_shape(*runtime.checkpoint));
  HEADWATER_RETURN_IF_ERROR(check_vocabulary(*tokenizer, shape, is_of_bytes));
  runtime.tokenizer = std::make_unique<text::Tokenizer>(std::move(tokenizer).value());
  HEADWATER_ASSIGN_OR_RETURN(runtime.chat_template,
                             open_chat_template(options.chat_template, *runtime.checkpoint, *runtime.tokenizer));
  const bool terminal = isatty(STDERR_FILENO) != 0;
  HEADWATER_ASSIGN_OR_RETURN(
      runtime.model, model::load_model(*runtime.checkpoint, *runtime.backend, terminal ? show_progress : nullptr));
  return runtime;
}

Result<TimedRuntime> load_timed(const RuntimeOptions& options) {
  bench::TimedBackend* timer = nullptr;
  HEADWATER_ASSIGN_OR_RETURN(Runtime runtime, Runtime::load(options, [&](std::unique_ptr<ops::Backend> backend) {
                               auto timed = std::make_unique<bench::TimedBackend>(std::move(backend));
                               timer = timed.get();
                               return timed;
                             }));
  return TimedRuntime{std::move(runtime), timer};
}

Result<EngineHandle> create_engine(Runtime& runtime, const engine::EngineConfig& config) {
  EngineHandle handle;
  HEADWATER_ASSIGN_OR_RETURN(handle.decoder, runtime.model->create_decoder());
  HEADWATER_ASSIGN_OR_RETURN(handle.engine, engine::Engine::create(config, *handle.decoder, *runtime.backend));
  return handle;
}

void print_settings(const Runtime& runtime, const engine::Engine& engine) {
  const model::ModelShape& shape = runtime.model->shape();
  const engine::EngineConfig& config = engine.config();
  const kv::CacheConfig& cache = engine.cache().config();
  const ops::BackendInfo& info = runtime.backend->info();
  fmt::print(stderr, "model    {} ({}, {} layers, {}/{} heads x {}, {:.0f} MB{}{})\n",
             std::filesystem::path(runtime.path).filename().string(), shape.family, shape.layers, shape.q_heads,
             shape.kv_heads, shape.head_dim, static_cast<double>(shape.weight_bytes) / 1e6,
             shape.variant.empty() ? "" : "; ", shape.variant);
  fmt::print(stderr, "backend  {} ({}{}{}), {} {}; costs {}\n", info.name, info.device, info.device.empty() ? "" : ", ",
             info.target, info.workers, info.name == "cuda" ? "multiprocessors" : "threads", runtime.costs);
  if (!runtime.passed_over.empty()) fmt::print(stderr, "         {}\n", runtime.passed_over);
  if (const std::string slow = types_without_kernel(runtime); !slow.empty()) {
    fmt::print(stderr, "weights  {}: no fast kernel yet, decoded before each product; Q8_0, Q4_1 and Q4_0 are faster\n",
               slow);
  }
  fmt::print(stderr, "kv cache {:.0f} MiB {}, {} pages of {} tokens = {} tokens; context {}\n",
             static_cast<double>(config.kv_bytes) / (1 << 20), to_string(config.kv_dtype), cache.pages, cache.page_size,
             uint64_t{cache.pages} * cache.page_size, config.context_max);
  fmt::print(stderr, "batch    {} sequences, {} tokens a step; shared prefix {}\n\n", config.sequences_max,
             config.step_tokens_max, to_string(config.attention.sharing));
}

}  // namespace headwater::apps
