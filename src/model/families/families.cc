#include <fmt/ranges.h>

#include <algorithm>

#include "core/shown.h"
#include "model/families/family.h"
#include "model/families/gemma2/gemma2.h"
#include "model/families/gemma3/gemma3.h"
#include "model/families/gpt_oss/gpt_oss.h"
#include "model/families/granite/granite.h"
#include "model/families/llama/llama.h"
#include "model/families/mixtral/mixtral.h"
#include "model/families/olmo2/olmo2.h"
#include "model/families/phi3/phi3.h"
#include "model/families/qwen2/qwen2.h"
#include "model/families/qwen3/qwen3.h"
#include "model/families/qwen3moe/qwen3moe.h"
#include "model/transformer/transformer.h"

namespace headwater::model {
namespace {

// Of rows with the same architecture the first one that applies counts.
constexpr Family kFamilies[] = {
    {"mixtral", "llama", "mixtral", mixtral::read, "expert_count"},
    {"llama", "llama", "llama mistral", llama::read},
    {"qwen2", "qwen2", "qwen2", qwen2::read},
    {"qwen3", "qwen3", "qwen3", qwen3::read},
    {"qwen3moe", "qwen3moe", "qwen3_moe", qwen3moe::read},
    {"gemma2", "gemma2", "gemma2", gemma2::read},
    {"gemma3", "gemma3", "gemma3_text", gemma3::read},
    {"phi3", "phi3", "phi3", phi3::read},
    {"granite", "granite", "granite", granite::read},
    {"gpt-oss", "gpt-oss", "gpt_oss", gpt_oss::read},
    {"olmo2", "olmo2", "olmo2", olmo2::read},
};

bool is_word_of(std::string_view word, std::string_view words) {
  while (!words.empty()) {
    const size_t end = std::min(words.find(' '), words.size());
    if (words.substr(0, end) == word) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

// As files of the format call them.
std::string known_names(bool gguf) {
  std::vector<std::string_view> names;
  for (const Family& family : kFamilies) {
    const std::string_view name = gguf ? family.gguf : family.folder;
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  }
  return fmt::format("{}", fmt::join(names, " "));
}

Result<const Family*> find_family(const Hyperparameters& h) {
  for (const Family& family : kFamilies) {
    const bool applies = family.gguf_key.empty() || h.has({family.gguf_key, ""});
    if (h.is_gguf() ? h.architecture() == family.gguf && applies : is_word_of(h.architecture(), family.folder)) {
      return &family;
    }
  }
  return error(ErrorCode::kUnsupported, "model family '{}' ({}) is not supported; known: {}", shown(h.architecture()),
               h.is_gguf() ? "general.architecture" : "model_type", known_names(h.is_gguf()));
}

}  // namespace

Result<Blueprint> read_blueprint(Hyperparameters& h) {
  HEADWATER_ASSIGN_OR_RETURN(const Family* family, find_family(h));
  Blueprint blueprint = family->read(h);
  HEADWATER_RETURN_IF_ERROR(h.finish());
  blueprint.shape.family = family->name;
  blueprint.shape.variant = describe_variant(blueprint);
  return blueprint;
}

std::span<const Family> families() {
  return kFamilies;
}

Result<ModelShape> read_shape(const Checkpoint& checkpoint) {
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(Blueprint blueprint, read_blueprint(h));
  return std::move(blueprint.shape);
}

Status check_tensors(const Checkpoint& checkpoint) {
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  HEADWATER_ASSIGN_OR_RETURN(const Blueprint blueprint, read_blueprint(h));
  Weights weights;
  return check_slots(checkpoint, bind_slots(checkpoint.tensors().size(), blueprint, weights), blueprint,
                     h.tensors_read());
}

Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, ops::Backend& backend,
                                          void (*progress)(float)) {
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  Weights weights;
  HEADWATER_ASSIGN_OR_RETURN(weights.blueprint, read_blueprint(h));
  const std::vector<Slot> slots = bind_slots(checkpoint.tensors().size(), weights.blueprint, weights);
  HEADWATER_RETURN_IF_ERROR(check_slots(checkpoint, slots, weights.blueprint, h.tensors_read()));
  const auto prepare = [&backend](const ops::WeightView& view) { return backend.prepare(view); };
  if (const auto& experts =
          weights.blueprint.experts) {  // more of them than the back end takes: before minutes of loading
    const uint32_t d = weights.blueprint.shape.embedding;
    HEADWATER_RETURN_IF_ERROR(backend.reserve_experts({1, d, experts->feed_forward, experts->count, experts->used}));
  }
  HEADWATER_RETURN_IF_ERROR(
      load_slots(checkpoint, slots, prepare, backend.info().copies_weights ? nullptr : &weights.converted, progress));
  HEADWATER_RETURN_IF_ERROR(place_vectors(weights, backend));
  checkpoint.drop_resident();
  return create_transformer(std::move(weights), backend);
}

}  // namespace headwater::model
