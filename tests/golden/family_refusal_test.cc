// What a folder's config.json or a GGUF file's metadata may say and a family does not compute is refused by name; what
// changes nothing is not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/registry/registry.h"
#include "golden/family_case.h"
#include "model/model.h"
#include "simulation/scripted_model.h"

namespace headwater::testing {
namespace {

using ::testing::HasSubstr;

FamilyCase case_of(std::string_view family, std::string_view name) {
  for (FamilyCase& one :
       FamilyCase::read(fmt::format("{}/tests/golden/families/{}.jsonl", HEADWATER_SOURCE_DIR, family))) {
    if (one.name() == name) return std::move(one);
  }
  check(false, "no such golden case");
  std::abort();
}

Result<model::ModelShape> shape_of(const Result<model::Checkpoint>& checkpoint) {
  if (!checkpoint) return checkpoint.status();
  HEADWATER_RETURN_IF_ERROR(model::check_tensors(*checkpoint));
  return model::read_shape(*checkpoint);
}

Result<model::ModelShape> shape_of_gguf(const FamilyCase& one) {
  const std::vector<std::byte> image = one.gguf_image();
  HEADWATER_ASSIGN_OR_RETURN(model::GgufFile file, model::GgufFile::parse(image));
  return shape_of(model::Checkpoint(std::move(file)));
}

struct Change {
  const char* family;
  const char* name;
  const char* key;
  const char* value;  // JSON; "" takes the key away
  ErrorCode code;     // kOk: taken
  const char* says;   // in the message
};

void apply(const Change& change, boost::json::object& to) {
  if (*change.value == '\0') {
    to.erase(change.key);
  } else {
    to[change.key] = boost::json::parse(change.value);
  }
}

void expect(const Change& change, const Result<model::ModelShape>& shape) {
  SCOPED_TRACE(fmt::format("{} {}: {} = {}", change.family, change.name, change.key, change.value));
  EXPECT_EQ(to_string(shape.status().code()), std::string(to_string(change.code))) << shape.status().message();
  EXPECT_THAT(shape.status().message(), HasSubstr(change.says));
}

constexpr ErrorCode kUnsupported = ErrorCode::kUnsupported, kCorrupt = ErrorCode::kCorrupt, kOk = ErrorCode::kOk;

const Change kConfigChanges[] = {
    {"llama", "linear", "attention_bias", "true", kUnsupported, "attention_bias is true"},
    {"llama", "linear", "mlp_bias", "true", kUnsupported, "mlp_bias is true"},
    {"llama", "linear", "hidden_act", "\"gelu\"", kUnsupported, "known: \"silu\""},
    {"llama", "linear", "is_causal", "false", kUnsupported, "is_causal is false"},
    {"llama", "linear", "rope_scaling", R"({"type": "dynamic", "factor": 2.0})", kUnsupported, "dynamic"},
    {"llama", "linear", "rope_scaling", R"({"rope_type": "linear"})", ErrorCode::kNotFound, "rope_scaling.factor"},
    {"llama", "linear", "rope_scaling", R"({"type": "linear", "factor": 4, "twist": 0.5})", kUnsupported,
     "rope_scaling.twist"},
    {"llama", "linear", "rope_scaling", R"({"type": "linear", "factor": 4})", kOk, ""},
    {"llama", "linear", "rope_parameters", R"({"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0})", kOk, ""},
    {"llama", "linear", "quantization_config", R"({"quant_method": "gptq", "bits": 4})", kUnsupported, "gptq"},
    {"llama", "linear", "quantization_config", R"({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0})", kOk,
     ""},
    {"llama", "linear", "quantization_config", R"({"quant_method": "compressed-tensors", "format": "float-quantized"})",
     kOk, ""},
    {"llama", "linear", "quantization_config", R"({"quant_method": "compressed-tensors", "format": "pack-quantized"})",
     kUnsupported, "quantization_config.format is \"pack-quantized\""},
    {"llama", "linear", "residual_dampening", "0.5", kUnsupported, "residual_dampening of config.json is 0.5"},
    {"llama", "linear", "residual_dampening", "null", kOk, ""},
    {"llama", "linear", "transformers_version", "\"4.57.0\"", kOk, ""},
    {"llama", "linear", "num_hidden_layers", "-1", kCorrupt, "num_hidden_layers is -1"},
    {"llama", "linear", "num_hidden_layers", "1", kUnsupported, "model.layers.1."},
    {"llama", "linear", "num_hidden_layers", "3", kCorrupt, "model.layers.2."},
    {"llama", "linear", "hidden_size", "\"wide\"", kCorrupt, "hidden_size is \"wide\""},
    {"llama", "linear", "hidden_size", "64.0", kCorrupt, "hidden_size is 64.0; expected an integer from 1 to 131072"},
    {"llama", "linear", "intermediate_size", "32", kCorrupt, "; expected [32, "},
    {"llama", "linear", "hidden_size", "", ErrorCode::kNotFound, "hidden_size"},
    {"llama", "linear", "vocab_size", "49", kCorrupt, "vocab_size is 49"},
    {"llama", "linear", "rms_norm_eps", "0", kCorrupt, "epsilon 0"},
    {"llama", "linear", "tie_word_embeddings", "false", kCorrupt, "lm_head.weight"},
    {"llama", "linear", "model_type", "\"mamba\"", kUnsupported, "known: mixtral llama mistral qwen2"},
    {"gemma3", "local_and_global", "model_type", "\"gemma3\"", kUnsupported, "gemma2 gemma3_text phi3"},
    {"llama", "linear", "model_type", "\"\\u001b[31m\"", kUnsupported, "model family '\\x1b[31m' (model_type)"},
    {"llama", "linear", "model_type", "5", kCorrupt, "model_type is 5; expected a text"},
    {"llama", "linear", "vocab_size", "524289", kCorrupt, "vocab_size is 524289; expected 1 to 524288"},
    {"llama", "linear", "model_type", "", ErrorCode::kNotFound, "model_type"},
    {"llama", "llama3", "rope_scaling",
     R"({"rope_type": "llama3", "factor": 4, "low_freq_factor": 4, "high_freq_factor": 4})", kCorrupt, "not above"},
    {"llama", "mistral", "sliding_window", "-24", kCorrupt, "sliding_window is -24"},
    {"qwen2", "head_80", "use_sliding_window", "true", kUnsupported, "use_sliding_window is true"},
    {"qwen2", "head_80", "layer_types", R"(["sliding_attention", "full_attention"])", kCorrupt, "sliding_window"},
    {"qwen2", "head_80", "layer_types", R"(["full_attention", "full_attention"])", kOk, ""},
    {"qwen2", "head_80", "layer_types", R"(["full_attention"])", kCorrupt, "a list of 2 texts"},
    {"qwen3", "head_128", "attention_bias", "true", kUnsupported, "attention_bias is true"},
    {"gemma2", "head_256", "attn_logit_softcapping", "null", ErrorCode::kNotFound, "attn_logit_softcapping"},
    {"gemma3", "local_and_global", "use_bidirectional_attention", "true", kUnsupported, "use_bidirectional_attention"},
    {"gemma3", "local_and_global", "layer_types", R"(["chunked_attention", "a", "a", "a", "a", "a", "a"])",
     kUnsupported, "chunked_attention"},
    {"phi3", "longrope_long", "partial_rotary_factor", "0.5", kCorrupt,
     "short_factor is a list of 16; expected 8 numbers"},
    {"mixtral", "four_experts", "num_experts_per_tok", "5", kCorrupt, "num_experts_per_tok is 5; expected 1 to 4"},
    {"mixtral", "four_experts", "num_local_experts", "5", kCorrupt, "block_sparse_moe.gate.weight"},
    {"qwen3moe", "eight_experts", "decoder_sparse_step", "2", kUnsupported, "decoder_sparse_step is 2"},
    {"qwen3moe", "eight_experts", "mlp_only_layers", "[1]", kUnsupported, "mlp_only_layers"},
    {"gpt_oss", "sinks_and_experts", "swiglu_limit", "5.0", kUnsupported, "swiglu_limit is 5"},
    {"gpt_oss", "sinks_and_experts", "sliding_window", "null", ErrorCode::kNotFound, "sliding_window"},
};

TEST(FamilyRefusals, NameTheKeyOfConfigJson) {
  for (const Change& change : kConfigChanges) {
    FamilyCase one = case_of(change.family, change.name);
    apply(change, one.config());
    if (std::string_view(change.key) == "rope_parameters") one.config().erase("rope_scaling");
    expect(change, shape_of(one.folder()));
  }
}

const Change kMetadataChanges[] = {
    {"llama", "linear", "rope.scaling.type", "\"dynamic\"", kUnsupported, "dynamic"},
    {"llama", "linear", "rope.scaling.type", "", kOk, ""},  // a factor alone is linear
    {"llama", "linear", "residual_dampening", "0.5", kUnsupported, "llama.residual_dampening is 0.5"},
    {"llama", "linear", "attention.causal", "false", kUnsupported, "llama.attention.causal is false"},
    {"llama", "llama3", "rope.dimension_count", "30", kCorrupt, "rope_freqs.weight"},
    {"granite", "multipliers", "rope.scaling.finetuned", "false", kUnsupported, "finetuned is false"},
    {"granite", "multipliers", "logit_scale", "0.0", kCorrupt, "logit_scale is 0"},
    {"gemma2", "head_256", "attn_logit_softcapping", "", kOk, ""},
    {"phi3", "longrope_long", "rope.scaling.original_context_length", "", ErrorCode::kNotFound,
     "original_context_length"},
    {"qwen3moe", "eight_experts", "expert_count", "", ErrorCode::kNotFound, "qwen3moe.expert_count"},
    {"qwen3moe", "eight_experts", "expert_shared_count", "1", kUnsupported, "expert_shared_count"},
};

TEST(FamilyRefusals, NameTheKeyOfTheMetadata) {
  for (const Change& change : kMetadataChanges) {
    FamilyCase one = case_of(change.family, change.name);
    apply(change, one.metadata());
    expect(change, shape_of_gguf(one));
  }
}

const Change kConfigChangesForGguf[] = {
    {"gemma2", "head_256", "query_pre_attn_scalar", "64", kUnsupported, "scale of scores of 0.125; a GGUF file"},
    {"gemma2", "head_256", "layer_types", R"(["full_attention", "full_attention", "sliding_attention"])", kOk, ""},
    {"gemma3", "local_and_global", "sliding_window_pattern", "3", kOk, ""},
    {"gpt_oss", "sinks_and_experts", "layer_types", R"(["full_attention", "sliding_attention"])", kOk, ""},
    {"granite", "multipliers", "residual_multiplier", "", kOk, ""},
    {"llama", "linear", "residual_dampening", "0.5", kUnsupported, "residual_dampening of config.json is 0.5"},
    {"llama", "llama3", "num_key_value_heads", "2", kCorrupt, "k_proj.weight"},
    {"llama", "yarn", "rope_scaling", R"({"rope_type": "yarn", "factor": 4.0, "truncate": false})", kUnsupported,
     "a frequency of RoPE of"},
    {"phi3", "longrope_long", "rope_scaling", "null", kOk, ""},
    {"qwen3moe", "eight_experts", "norm_topk_prob", "false", kUnsupported,
     "shares of experts that are made to sum to 1"},
};

TEST(QuantizeRefuses, WhatAGgufFileOfTheFamilyHasNoPlaceFor) {
  for (const Change& change : kConfigChangesForGguf) {
    FamilyCase one = case_of(change.family, change.name);
    apply(change, one.config());
    const Result<model::ModelShape> shape = shape_of(one.quantized(DType::kBF16));
    expect(change, shape);
    if (!shape) continue;
    const Result<model::ModelShape> folder = shape_of(one.folder());
    ASSERT_TRUE(folder) << folder.status().message();
    EXPECT_EQ(shape->variant, folder->variant);
    EXPECT_EQ(shape->windows, folder->windows);
  }
}

// The scripted back end takes no experts, and stops the test when a weight is prepared.
TEST(FamilyRefusals, ComeBeforeWeightsAreReadWhereTheBackEndTakesNoSuchExperts) {
  const std::vector<std::byte> image = case_of("mixtral", "four_experts").gguf_image();
  const model::Checkpoint checkpoint(model::GgufFile::parse(image).value());
  ScriptedBackend backend(64);
  EXPECT_THAT(model::load_model(checkpoint, backend).status().message(), HasSubstr("has no experts"));
}

TEST(FamilyShapes, SayWhichLayersHaveAWindow) {
  const Result<model::ModelShape> gemma3 = shape_of(case_of("gemma3", "local_and_global").folder());
  ASSERT_TRUE(gemma3) << gemma3.status().message();
  EXPECT_EQ(gemma3->windows, (std::vector<uint32_t>{12, 0}));
  EXPECT_EQ(gemma3->variant, "window 12 in 6 of 7 layers, linear x 8");
  const Result<model::ModelShape> gpt_oss = shape_of_gguf(case_of("gpt_oss", "sinks_and_experts"));
  ASSERT_TRUE(gpt_oss) << gpt_oss.status().message();
  EXPECT_EQ(gpt_oss->variant, "window 16 in 1 of 2 layers, 2 of 4 experts, sinks, yarn x 4");
  const Result<model::ModelShape> mistral = shape_of_gguf(case_of("llama", "mistral"));
  ASSERT_TRUE(mistral) << mistral.status().message();
  EXPECT_EQ(mistral->windows, std::vector<uint32_t>{24});
}

}  // namespace
}  // namespace headwater::testing
