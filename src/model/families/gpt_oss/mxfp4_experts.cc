#include "model/families/gpt_oss/mxfp4_experts.h"

#include <array>

namespace headwater::model::gpt_oss {
namespace {

constexpr uint64_t kElements = 32, kHalf = kElements / 2;

// One of the matrices that share a tensor: rows `first`, `first + step`, ... of each expert.
struct Share {
  LoadedLinear ExpertWeights::*part;
  uint64_t first;
  uint64_t step;
};

struct Stack {
  std::string name;  // without _blocks, _scales, _bias
  uint64_t rows;     // of one expert, all shares together
  uint64_t columns;
  std::vector<Share> shares;
};

void append_block(std::byte scale, const std::byte* from, std::vector<std::byte>& to) {
  std::array<std::byte, kElements> elements;
  for (uint64_t j = 0; j < kHalf; ++j) {
    elements[2 * j] = from[j] & std::byte{15};
    elements[2 * j + 1] = from[j] >> 4;
  }
  to.push_back(scale);
  for (uint64_t j = 0; j < kHalf; ++j) to.push_back(elements[j] | elements[j + kHalf] << 4);
}

Status load_blocks(const Stack& stack, std::vector<ExpertWeights>& experts, WeightLoader& loader,
                   const Tensor& blocks) {
  const Tensor& scales = loader.tensor(stack.name + "_scales");
  for (const Tensor* tensor : {&blocks, &scales}) {
    if (tensor->dtype == DType::kU8) continue;
    return error(ErrorCode::kUnsupported, "tensor {} has type {}; expected U8", tensor->name, to_string(tensor->dtype));
  }
  const uint64_t blocks_of_row = stack.columns / kElements;
  for (uint64_t index = 0; index < experts.size(); ++index) {
    for (const Share& share : stack.shares) {
      const uint64_t rows = stack.rows / share.step;
      std::vector<std::byte> bytes;
      bytes.reserve(rows * row_bytes(DType::kMXFP4, stack.columns));
      for (uint64_t row = share.first; row < stack.rows; row += share.step) {
        const uint64_t first = (index * stack.rows + row) * blocks_of_row;
        for (uint64_t block = first; block < first + blocks_of_row; ++block) {
          append_block(scales.data[block], &blocks.data[block * kHalf], bytes);
        }
      }
      WeightPtr& to = (experts[index].*share.part).weight;
      HEADWATER_RETURN_IF_ERROR(loader.matrix(std::move(bytes), DType::kMXFP4, rows, stack.columns, to));
    }
  }
  loader.report(blocks);
  return {};
}

Status load_bias(const Stack& stack, std::vector<ExpertWeights>& experts, WeightLoader& loader, const Tensor& tensor) {
  std::vector<float> all;
  HEADWATER_RETURN_IF_ERROR(loader.vector(tensor, all));
  for (uint64_t index = 0; index < experts.size(); ++index) {
    for (const Share& share : stack.shares) {
      std::vector<float>& bias = (experts[index].*share.part).bias.values;
      for (uint64_t row = share.first; row < stack.rows; row += share.step) {
        bias.push_back(all[index * stack.rows + row]);
      }
    }
  }
  return {};
}

}  // namespace

void mxfp4_expert_slots(const Blueprint& blueprint, uint32_t layer, LayerWeights& weights, std::vector<Slot>& slots) {
  const uint64_t d = blueprint.shape.embedding, n = blueprint.experts->feed_forward, count = blueprint.experts->count;
  const std::string prefix = fmt::format("model.layers.{}.mlp.experts.", layer);
  const Stack stacks[] = {
      {prefix + "gate_up_proj", 2 * n, d, {{&ExpertWeights::gate, 0, 2}, {&ExpertWeights::up, 1, 2}}},
      {prefix + "down_proj", d, n, {{&ExpertWeights::down, 0, 1}}},
  };
  for (const Stack& stack : stacks) {
    const uint64_t blocks_of_row = stack.columns / kElements;
    slots.push_back({.name = stack.name + "_blocks",
                     .columns = kHalf,
                     .rows = count * stack.rows * blocks_of_row,
                     .load = [stack, &experts = weights.experts](WeightLoader& loader, const Tensor& tensor) {
                       return load_blocks(stack, experts, loader, tensor);
                     }});
    slots.push_back({.name = stack.name + "_scales",
                     .columns = blocks_of_row,
                     .rows = count * stack.rows,
                     .load = [](WeightLoader& loader, const Tensor& tensor) {  // read with the blocks
                       loader.report(tensor);
                       return Status();
                     }});
    slots.push_back({.name = stack.name + "_bias",
                     .columns = stack.rows,
                     .rows = count,
                     .load = [stack, &experts = weights.experts](WeightLoader& loader, const Tensor& tensor) {
                       return load_bias(stack, experts, loader, tensor);
                     }});
  }
}

}  // namespace headwater::model::gpt_oss
