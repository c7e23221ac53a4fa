#define HEADWATER_TARGET_NAMESPACE avx512_amx
#include "backend/cpu/attention-inl.h"
#include "backend/cpu/rope-inl.h"
#include "backend/cpu/tile_dots-inl.h"

namespace headwater::backend::cpu {

const AttentionKernels kAttentionAvx512Amx = {
    avx512_amx::TileDots<avx512_amx::Bf16Elements>::kRows, avx512_amx::VectorDots<avx512_amx::F32Elements>::kRows,
    avx512_amx::attend_item<avx512_amx::TileDots>, avx512_amx::merge_token, avx512_amx::rope_append_token};

}  // namespace headwater::backend::cpu
