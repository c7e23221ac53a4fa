// Names of config.json and GGUF metadata that Hyperparameters treats alike in every family.
#pragma once

#include <string_view>

namespace headwater::model {

// Leaves that were renamed over the years; each rule applies once, in this order. transformers 5 moved what concerns RoPE to
// rope_parameters, for models with local layers one object for each kind of layer.
struct Renamed {
  std::string_view prefix;
  std::string_view first_name;
};
inline constexpr Renamed kRenamed[] = {
    {"rope_parameters.full_attention.", "rope_scaling."},
    {"rope_parameters.sliding_attention.rope_theta", "rope_local_base_freq"},
    {"rope_parameters.sliding_attention.", "rope_scaling_local."},
    {"rope_parameters.", "rope_scaling."},
    {"rope_scaling.rope_theta", "rope_theta"},
    {"rope_scaling.partial_rotary_factor", "partial_rotary_factor"},
    {"rope_scaling.type", "rope_scaling.rope_type"},
    {"_sliding_window_pattern", "sliding_window_pattern"},
};

// What changes no logit: names of things, training, the tokenizer. A star stands for any ending.
inline constexpr std::string_view kHarmlessInConfig[] = {
    "_*",
    "architectures",
    "attention_dropout",
    "attn_implementation",
    "auto_map*",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_implementation",
    "classifier_dropout",
    "dtype",
    "embd_pdrop",
    "eos_token_id",
    "hidden_dropout",
    "id2label*",
    "initializer_range",
    "is_llama_config",
    "label2id*",
    "max_length",
    "max_sequence_length",
    "model_type",
    "output_router_logits",
    "pad_token_id",
    "pretraining_tp",
    "quantization_config.*",  // its quant_method is read
    "resid_pdrop",
    "return_dict",
    "rope_scaling_local.rope_type",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "task_specific_params*",
    "tokenizer_class",
    "torch_dtype",
    "transformers.js_config*",
    "transformers_version",
    "unk_token_id",
    "unsloth*",
    "use_bfloat16",
    "use_cache",
};

// Behind "<architecture>.".
inline constexpr std::string_view kHarmlessInGguf[] = {
    "pooling_type",
    "rope.scaling.finetuned",
    "tensor_data_layout",
    "vocab_size",
};

}  // namespace headwater::model
