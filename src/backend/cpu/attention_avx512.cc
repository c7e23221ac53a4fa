#define HEADWATER_TARGET_NAMESPACE avx512
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/rope-inl.h"

namespace headwater::backend::cpu {

const AttentionKernels kAttentionAvx512 = {avx512::VectorDots<avx512::Bf16Elements>::kRows,
                                           avx512::VectorDots<avx512::F32Elements>::kRows, avx512::attend_item<>,
                                           avx512::merge_token, avx512::rope_append_token};

}  // namespace headwater::backend::cpu
