#define HEADWATER_TARGET_NAMESPACE avx2
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/rope-inl.h"

namespace headwater::backend::cpu {

const AttentionKernels kAttentionAvx2 = {avx2::VectorDots<avx2::Bf16Elements>::kRows,
                                         avx2::VectorDots<avx2::F32Elements>::kRows, avx2::attend_item<>,
                                         avx2::merge_token, avx2::rope_append_token};

}  // namespace headwater::backend::cpu
