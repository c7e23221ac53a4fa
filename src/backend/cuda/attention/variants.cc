// The Hopper kernels that were built: one a (element, head size in shared memory), instantiated in instantiate/.
#include "backend/cuda/attention/variants.h"

#include "backend/cuda/attention/policy.h"

namespace headwater::backend::cuda {
namespace {

struct Variant {
  KvElement element;
  uint32_t head_dim;
  LaunchAttend launch;
};

#ifdef HEADWATER_CUDA_HOPPER
constexpr Variant kVariants[] = {
    {KvElement::kBF16, 64, launch_hopper_bf16_64},   {KvElement::kBF16, 128, launch_hopper_bf16_128},
    {KvElement::kBF16, 256, launch_hopper_bf16_256}, {KvElement::kF16, 64, launch_hopper_f16_64},
    {KvElement::kF16, 128, launch_hopper_f16_128},   {KvElement::kF16, 256, launch_hopper_f16_256},
};
#else
constexpr std::array<Variant, 0> kVariants{};
#endif

}  // namespace

LaunchAttend hopper_variant(KvElement element, uint32_t head_dim, uint32_t group) {
  // Copies move 16 bytes at least: strides are multiples of 8 elements.
  if (head_dim % 8 != 0 || head_dim > 256 || slab_tokens(group) == 0) return nullptr;
  for (const Variant& variant : kVariants) {
    if (variant.element == element && variant.head_dim == attend_policy(head_dim).head_dim) return variant.launch;
  }
  return nullptr;
}

}  // namespace headwater::backend::cuda
