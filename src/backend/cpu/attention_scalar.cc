#define HEADWATER_TARGET_NAMESPACE scalar
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/rope-inl.h"

namespace headwater::backend::cpu {

const AttentionKernels kAttentionScalar = {scalar::VectorDots<scalar::Bf16Elements>::kRows,
                                           scalar::VectorDots<scalar::F32Elements>::kRows, scalar::attend_item<>,
                                           scalar::merge_token, scalar::rope_append_token};

}  // namespace headwater::backend::cpu
