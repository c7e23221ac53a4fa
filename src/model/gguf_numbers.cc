#include "model/gguf_numbers.h"

#include <algorithm>
#include <cmath>

#include "model/families/family.h"

namespace headwater::model {
namespace {

// Numbers go through f32, and so do those that factors of RoPE are made of.
constexpr double kRounding = 1e-6;

using Named = std::vector<std::pair<std::string, double>>;

// All that a forward pass takes from a blueprint beside tensors.
Named numbers_of(const Blueprint& b) {
  const ModelShape& s = b.shape;
  Named all = {{"a number of layers of", s.layers},
               {"an embedding of", s.embedding},
               {"a feed-forward width of", s.feed_forward},
               {"a number of query heads of", s.q_heads},
               {"a number of KV heads of", s.kv_heads},
               {"a head size of", s.head_dim},
               {"a vocabulary of", s.vocabulary},
               {"a context of", s.context_max},
               {"an epsilon of", s.norm_epsilon},
               {"a scale of scores of", b.attention_scale},
               {"a soft cap of scores of", b.attention_softcap},
               {"a soft cap of logits of", b.logit_softcap},
               {"a scale of embeddings of", b.embedding_scale},
               {"a scale of residuals of", b.residual_scale},
               {"a scale of logits of", b.logit_scale},
               {"an output that is the embedding:", b.tied}};
  const ExpertPlan experts = b.experts.value_or(ExpertPlan());
  all.insert(all.end(), {{"a number of experts of", experts.count},
                         {"a number of experts of a token of", experts.used},
                         {"an expert's width of", experts.feed_forward},
                         {"shares of experts that are made to sum to 1:", experts.renormalize}});
  for (size_t layer = 0; layer < b.layers.size(); ++layer) {
    all.emplace_back(fmt::format("in layer {} a window of", layer), s.windows[b.layers[layer].window]);
    all.emplace_back(fmt::format("in layer {} the RoPE of number", layer), b.layers[layer].rope);
  }
  for (size_t index = 0; index < b.ropes.size(); ++index) {
    const RopeTable& rope = b.ropes[index];
    all.emplace_back("a scale of RoPE of", rope.scale);
    all.emplace_back("an original context of RoPE of", rope.original_context);
    for (const std::vector<float>* list : {&rope.frequencies, &rope.long_frequencies}) {
      all.emplace_back("a number of frequencies of RoPE of", list->size());
      for (const float frequency : *list) all.emplace_back("a frequency of RoPE of", frequency);
    }
  }
  return all;
}

Result<Blueprint> read_back(const std::vector<std::byte>& image) {
  HEADWATER_ASSIGN_OR_RETURN(GgufFile file, GgufFile::parse(image));
  const Checkpoint checkpoint(std::move(file));
  HEADWATER_ASSIGN_OR_RETURN(Hyperparameters h, Hyperparameters::open(checkpoint));
  return read_blueprint(h);
}

}  // namespace

std::vector<std::byte> write_numbers(std::string_view architecture, const GgufNumbers& numbers, GgufHeader& header) {
  header.value("general.architecture", std::string(architecture));
  for (const auto& [key, value] : numbers.values) {
    const std::string name = fmt::format("{}.{}", architecture, key);
    const auto put = [&]<typename T>(const T& item) {
      if constexpr (std::is_same_v<T, std::vector<bool>>) {
        header.array(name, item);
      } else {
        header.value(name, item);
      }
    };
    std::visit(put, value);
  }
  std::vector<std::byte> data;
  for (const auto& [name, values] : numbers.tensors) {
    const uint64_t count[] = {values.size()};
    const auto bytes = std::as_bytes(std::span(values));
    data.resize(header.tensor(name, *gguf_number(DType::kF32), count, bytes.size()));
    data.insert(data.end(), bytes.begin(), bytes.end());
  }
  return data;
}

Status check_numbers(std::string_view architecture, const GgufNumbers& numbers, const Blueprint& folder) {
  GgufHeader header;
  std::vector<std::byte> data = write_numbers(architecture, numbers, header);
  const auto stand_in = [&](std::string_view name, uint64_t rows) {  // of which a reader takes the number of rows alone
    const uint64_t shape[] = {1, rows};
    header.tensor(name, *gguf_number(DType::kF32), shape, rows * sizeof(float));
  };
  stand_in("token_embd.weight", folder.shape.vocabulary);
  if (!folder.tied) stand_in("output.weight", 1);
  data.resize(header.data_bytes());
  std::vector<std::byte> image = header.bytes();
  image.insert(image.end(), data.begin(), data.end());
  HEADWATER_ASSIGN_OR_RETURN(const Blueprint gguf, read_back(image));
  const Named given = numbers_of(folder), read = numbers_of(gguf);
  const auto same = [](const auto& a, const auto& b) {
    return a.first == b.first && std::fabs(a.second - b.second) <= kRounding * std::fabs(a.second);
  };
  const auto [a, b] = std::ranges::mismatch(given, read, same);
  if (a == given.end() && b == read.end()) return {};
  check(a != given.end() && b != read.end(), "what differs in length differs in a number before");
  return error(
      ErrorCode::kUnsupported,
      "config.json gives {} {:g}; a GGUF file of '{}' has no place for it and would say {:g}: use the folder as "
      "it is",
      a->first, a->second, architecture, b->second);
}

}  // namespace headwater::model
