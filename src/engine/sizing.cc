#include "engine/sizing.h"

#include <algorithm>
#include <limits>

namespace headwater::engine {
namespace {

Status check_config(const EngineConfig& config, const ops::BackendInfo& backend) {
  if (config.sequences_max == 0 || config.step_tokens_max == 0 || config.queue_requests_max == 0 ||
      config.queue_tokens_max == 0 || config.choices_max == 0 || config.page_size == 0) {
    return error(ErrorCode::kInvalidArgument,
                 "sequences_max {}, step_tokens_max {}, queue_requests_max {}, queue_tokens_max {}, choices_max {} and "
                 "page_size {} must each be at least 1",
                 config.sequences_max, config.step_tokens_max, config.queue_requests_max, config.queue_tokens_max,
                 config.choices_max, config.page_size);
  }
  if (config.page_size % backend.page_size_multiple != 0) {
    return error(ErrorCode::kInvalidArgument,
                 "page size {} is not a multiple of {}, which the {} back end needs; use {}", config.page_size,
                 backend.page_size_multiple, backend.name,
                 (config.page_size / backend.page_size_multiple + 1) * backend.page_size_multiple);
  }
  return {};
}

Result<uint32_t> pool_pages(const EngineConfig& config, const ops::KvShape& kv, const ops::PoolMemory& memory) {
  const uint64_t bytes = config.kv_bytes != 0 ? config.kv_bytes : memory.usual;
  const uint64_t pages = bytes / kv.bytes_page();
  const uint64_t pages_context = (uint64_t{config.context_max} + kv.page_size - 1) / kv.page_size;
  if (config.kv_bytes == 0 && pages < pages_context) {
    return error(ErrorCode::kExhausted,
                 "a context of {} tokens needs {} bytes of KV pages, but of {} bytes of free memory they get {}, {}; "
                 "lower the context (context_max, --max-model-len) or set the pool (kv_bytes, --kv-cache-memory)",
                 config.context_max, pages_context * kv.bytes_page(), memory.free, bytes, memory.why);
  }
  if (memory.free > 0 && bytes > memory.free) {
    return error(
        ErrorCode::kExhausted,
        "a KV pool of {} bytes (kv_bytes, --kv-cache-memory) is more than the {} bytes of free memory; lower it", bytes,
        memory.free);
  }
  if (pages == 0) {
    return error(ErrorCode::kInvalidArgument,
                 "a KV pool of {} bytes (kv_bytes, --kv-cache-memory) is less than one page of {}; raise it", bytes,
                 kv.bytes_page());
  }
  return static_cast<uint32_t>(std::min<uint64_t>(pages, std::numeric_limits<int32_t>::max()));
}

Status out_of_range(const char* field, double value, const char* range) {
  return error(ErrorCode::kInvalidArgument, "{} is {}; it must be in {}", field, value, range);
}

Status validate_tokens(std::span<const TokenId> tokens, const char* field, uint32_t vocabulary) {
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= vocabulary) {
      return error(ErrorCode::kInvalidArgument, "{} holds token id {}; the vocabulary has ids 0 to {}", field, token,
                   vocabulary - 1);
    }
  }
  return {};
}

Status validate_sampling(const SamplingParams& sampling, uint32_t vocabulary) {
  const auto inside = [](float value, float low, float high) {
    return value >= low && value <= high;
  };  // false for NaN
  if (!inside(sampling.temperature, 0, 2)) return out_of_range("temperature", sampling.temperature, "[0, 2]");
  if (!inside(sampling.top_p, 0, 1) || sampling.top_p == 0) return out_of_range("top_p", sampling.top_p, "(0, 1]");
  if (!inside(sampling.min_p, 0, 1)) return out_of_range("min_p", sampling.min_p, "[0, 1]");
  if (!inside(sampling.repetition_penalty, 0.01f, 10)) {
    return out_of_range("repetition_penalty", sampling.repetition_penalty, "[0.01, 10]");
  }
  if (!inside(sampling.frequency_penalty, -2, 2)) {
    return out_of_range("frequency_penalty", sampling.frequency_penalty, "[-2, 2]");
  }
  if (!inside(sampling.presence_penalty, -2, 2)) {
    return out_of_range("presence_penalty", sampling.presence_penalty, "[-2, 2]");
  }
  if (sampling.top_logprobs > ops::kLogprobsMax) {
    return error(ErrorCode::kInvalidArgument, "top_logprobs is {}; at most {} are given", sampling.top_logprobs,
                 ops::kLogprobsMax);
  }
  if (sampling.tokens_max == 0 || sampling.tokens_min > sampling.tokens_max) {
    return error(ErrorCode::kInvalidArgument,
                 "tokens_max is {} and tokens_min {}; at least one token is generated, and "
                 "tokens_min may not be larger",
                 sampling.tokens_max, sampling.tokens_min);
  }
  for (const ops::LogitBias& bias : sampling.logit_bias) {
    if (!inside(bias.bias, -100, 100)) return out_of_range("logit_bias", bias.bias, "[-100, 100]");
    HEADWATER_RETURN_IF_ERROR(validate_tokens({&bias.token, 1}, "logit_bias", vocabulary));
  }
  return validate_tokens(sampling.stop_ids, "stop_ids", vocabulary);
}

}  // namespace

Result<Sizing> size_engine(const EngineConfig& config, const model::ModelShape& model, const ops::BackendInfo& backend,
                           const ops::PoolMemory& memory) {
  HEADWATER_RETURN_IF_ERROR(check_config(config, backend));
  if (model.windows.empty() || model.windows.size() > ops::kPlansMax) {
    return error(ErrorCode::kUnsupported, "{} has layers with {} different attention windows; a step plans 1 to {}",
                 model.name, model.windows.size(), ops::kPlansMax);
  }
  Sizing sizing{.config = config};
  EngineConfig& settings = sizing.config;
  if (settings.context_max == 0) settings.context_max = model.context_max;
  if (settings.attention.cut == 0) settings.attention.cut = backend.cut;
  settings.attention.invariant = settings.attention.invariant && backend.invariant;
  settings.run_ahead = settings.run_ahead && backend.runs_ahead;
  if (settings.context_max > model.context_max) {
    return error(
        ErrorCode::kInvalidArgument,
        "a context of {} (context_max, --max-model-len) is more than the {} tokens that {} was trained for; lower it",
        settings.context_max, model.context_max, model.name);
  }
  sizing.kv = model.kv_shape(settings.page_size, 0, settings.kv_dtype);
  HEADWATER_ASSIGN_OR_RETURN(sizing.kv.pages, pool_pages(settings, sizing.kv, memory));
  settings.kv_bytes = sizing.kv.bytes();
  const uint64_t tokens_pool = uint64_t{sizing.kv.pages} * settings.page_size;
  sizing.sequence_tokens_max = static_cast<uint32_t>(std::min<uint64_t>(settings.context_max, tokens_pool));
  sizing.limits = {.sequences_max = settings.sequences_max,
                   .tokens_max = settings.step_tokens_max,
                   .pages_per_sequence_max = (sizing.sequence_tokens_max + settings.page_size - 1) / settings.page_size,
                   .page_size = settings.page_size,
                   .logits_max = settings.sequences_max,
                   .workers = backend.workers,
                   .plans = static_cast<uint32_t>(model.windows.size())};
  return sizing;
}

Status validate(const Request& request, const Sizing& sizing, uint32_t vocabulary) {
  const EngineConfig& config = sizing.config;
  if (request.prompt.empty()) {
    return error(ErrorCode::kInvalidArgument, "the prompt has 0 tokens; it needs at least 1");
  }
  if (request.n == 0 || request.n > config.choices_max) {
    return error(ErrorCode::kInvalidArgument, "n is {}; it must be from 1 to {}", request.n, config.choices_max);
  }
  HEADWATER_RETURN_IF_ERROR(validate_tokens(request.prompt, "the prompt", vocabulary));
  HEADWATER_RETURN_IF_ERROR(validate_sampling(request.sampling, vocabulary));
  const uint64_t tokens = uint64_t{request.prompt.size()} + request.sampling.tokens_max;
  if (tokens > config.context_max) {
    return error(
        ErrorCode::kInvalidArgument,
        "{} prompt tokens and {} to generate are {}, more than the context of {} tokens; shorten the prompt or "
        "ask for fewer (tokens_max, --max-tokens)",
        request.prompt.size(), request.sampling.tokens_max, tokens, config.context_max);
  }
  if (tokens > sizing.sequence_tokens_max) {
    return error(
        ErrorCode::kInvalidArgument,
        "{} prompt tokens and {} to generate are {}, more than the {} tokens that all KV pages hold; shorten the "
        "prompt, ask for fewer (tokens_max, --max-tokens) or raise the pool (kv_bytes, --kv-cache-memory)",
        request.prompt.size(), request.sampling.tokens_max, tokens, sizing.sequence_tokens_max);
  }
  if (request.prompt.size() > config.queue_tokens_max) {
    return error(ErrorCode::kInvalidArgument, "{} prompt tokens are more than the queue's {}; raise queue_tokens_max",
                 request.prompt.size(), config.queue_tokens_max);
  }
  return {};
}

}  // namespace headwater::engine
