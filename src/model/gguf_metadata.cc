#include "model/gguf_metadata.h"

#include <boost/json/serialize.hpp>
#include <cmath>

#include "model/gguf_names.h"
#include "model/names.h"
#include "model/transformer/rope.h"

namespace headwater::model {
namespace {

Result<uint32_t> number_at(const json::Value& config, std::string_view name, uint64_t low, uint64_t high) {
  const json::Value* value = json::find(config, name);
  const std::optional<uint64_t> number = value == nullptr ? std::nullopt : json::to_unsigned(*value);
  if (number && *number >= low && *number <= high) return static_cast<uint32_t>(*number);
  return error(ErrorCode::kCorrupt, "config.json: \"{}\" is {}; expected an integer of {} to {}", name,
               value == nullptr ? "missing" : boost::json::serialize(*value).substr(0, 40), low, high);
}

Result<uint32_t> number_or(const json::Value& config, std::string_view name, uint64_t low, uint64_t high,
                           uint64_t absent) {
  if (json::find(config, name) != nullptr) return number_at(config, name, low, high);
  return static_cast<uint32_t>(absent);
}

Result<double> real_at(const json::Value& object, std::string_view name, double low, double high) {
  const json::Value* value = json::find(object, name);
  const double number = value != nullptr && value->is_number() ? value->to_number<double>() : std::nan("");
  if (number > low && number < high) return number;
  return error(ErrorCode::kCorrupt, "config.json: \"{}\" is missing or not a number in ({}, {})", name, low, high);
}

Result<std::vector<float>> read_llama3(const json::Value& scaling, double base, uint32_t dims) {
  Llama3Scaling read;
  HEADWATER_ASSIGN_OR_RETURN(read.factor, real_at(scaling, "factor", 0, 1e6));
  HEADWATER_ASSIGN_OR_RETURN(read.low_freq_factor, real_at(scaling, "low_freq_factor", 0, 1e6));
  HEADWATER_ASSIGN_OR_RETURN(read.high_freq_factor, real_at(scaling, "high_freq_factor", 0, 1e6));
  HEADWATER_ASSIGN_OR_RETURN(read.original_context, real_at(scaling, "original_max_position_embeddings", 0, 1e9));
  if (read.low_freq_factor >= read.high_freq_factor) {
    return error(ErrorCode::kCorrupt, "config.json: low_freq_factor {} is not below {}", read.low_freq_factor,
                 read.high_freq_factor);
  }
  const std::vector<double> factors = llama3_factors(read, base, dims);
  return std::vector<float>(factors.begin(), factors.end());
}

// rope_theta and rope_scaling, which newer files have together as rope_parameters.
Status write_rope(const json::Value& config, const std::string& prefix, FolderShape& shape, GgufHeader& header) {
  const json::Value* parameters = json::find(config, "rope_parameters");
  const json::Value* scaling = parameters != nullptr ? parameters : json::find(config, "rope_scaling");
  double base = 10000;
  const json::Value& base_of = parameters != nullptr ? *parameters : config;
  if (json::find(base_of, "rope_theta") != nullptr) {
    HEADWATER_ASSIGN_OR_RETURN(base, real_at(base_of, "rope_theta", 1, 1e12));
  }
  header.value(prefix + "rope.freq_base", static_cast<float>(base));
  header.value(prefix + "rope.dimension_count", static_cast<uint32_t>(shape.head_dim));
  if (scaling == nullptr) return {};
  std::string_view kind = json::text_at(*scaling, "rope_type");
  if (kind.empty()) kind = json::text_at(*scaling, "type");
  if (kind.empty() || kind == "default") return {};
  if (kind == "linear") {
    HEADWATER_ASSIGN_OR_RETURN(const double factor, real_at(*scaling, "factor", 0, 1e6));
    header.value(prefix + "rope.scaling.type", std::string("linear"));
    header.value(prefix + "rope.scaling.factor", static_cast<float>(factor));
    return {};
  }
  if (kind != "llama3") {
    return error(ErrorCode::kUnsupported,
                 "config.json: RoPE scaling \"{}\" is not written; known are linear and llama3",
                 is_printable(kind) ? kind : "?");
  }
  HEADWATER_ASSIGN_OR_RETURN(shape.rope_factors, read_llama3(*scaling, base, static_cast<uint32_t>(shape.head_dim)));
  return {};
}

}  // namespace

Result<FolderShape> write_config(const json::Value& config, std::string_view name, GgufHeader& header) {
  FolderShape shape;
  const std::string_view model_type = json::text_at(config, "model_type");
  const auto architecture = gguf_architecture(model_type);
  if (!architecture) {
    return error(ErrorCode::kUnsupported, "config.json: model_type \"{}\" is not written as GGUF; known are {}",
                 is_printable(model_type) ? model_type : "?", gguf_model_types());
  }
  if (json::find(config, "sliding_window") != nullptr) {
    return error(ErrorCode::kUnsupported, "config.json: a \"sliding_window\", which GGUF's {} has no key for",
                 *architecture);
  }
  shape.architecture = *architecture;
  const std::string prefix = fmt::format("{}.", *architecture);
  header.value("general.architecture", std::string(*architecture)).value("general.name", std::string(name));
  const auto copy = [&](std::string_view from, std::string_view to, uint64_t high) -> Status {
    HEADWATER_ASSIGN_OR_RETURN(const uint32_t number, number_at(config, from, 1, high));
    header.value(prefix + std::string(to), number);
    return {};
  };
  HEADWATER_RETURN_IF_ERROR(copy("num_hidden_layers", "block_count", 1024));
  HEADWATER_RETURN_IF_ERROR(copy("max_position_embeddings", "context_length", 1 << 24));
  HEADWATER_RETURN_IF_ERROR(copy("hidden_size", "embedding_length", 1 << 17));
  HEADWATER_RETURN_IF_ERROR(copy("intermediate_size", "feed_forward_length", 1 << 20));
  HEADWATER_RETURN_IF_ERROR(copy("vocab_size", "vocab_size", 1 << 24));
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t width, number_at(config, "hidden_size", 1, 1 << 17));
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t heads, number_at(config, "num_attention_heads", 1, 4096));
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t kv_heads, number_or(config, "num_key_value_heads", 1, heads, heads));
  HEADWATER_ASSIGN_OR_RETURN(const uint32_t head_dim, number_or(config, "head_dim", 2, 1024, width / heads));
  if (head_dim < 2 || head_dim % 2 != 0)
    return error(ErrorCode::kCorrupt, "config.json: heads of {}; expected an even number", head_dim);
  shape.head_dim = head_dim;
  header.value(prefix + "attention.head_count", heads).value(prefix + "attention.head_count_kv", kv_heads);
  header.value(prefix + "attention.key_length", head_dim).value(prefix + "attention.value_length", head_dim);
  HEADWATER_ASSIGN_OR_RETURN(const double epsilon, real_at(config, "rms_norm_eps", 0, 1));
  header.value(prefix + "attention.layer_norm_rms_epsilon", static_cast<float>(epsilon));
  HEADWATER_RETURN_IF_ERROR(write_rope(config, prefix, shape, header));
  return shape;
}

}  // namespace headwater::model
