#define HEADWATER_TARGET_NAMESPACE avx512_bf16
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/rope-inl.h"

namespace headwater::backend::cpu {

const AttentionKernels kAttentionAvx512Bf16 = {
    avx512_bf16::VectorDots<avx512_bf16::Bf16Elements>::kRows, avx512_bf16::VectorDots<avx512_bf16::F32Elements>::kRows,
    avx512_bf16::attend_item<>, avx512_bf16::merge_token, avx512_bf16::rope_append_token};

}  // namespace headwater::backend::cpu
