#define HEADWATER_TARGET_NAMESPACE avx512_amx
#include "backend/cpu/peaks-inl.h"
#include "backend/cpu/tile_dots-inl.h"

namespace headwater::backend::cpu {

const PeakKernels kPeaksAvx512Amx = {avx512_amx::TileDots<avx512_amx::Bf16Elements>::kRows,
                                     avx512_amx::repeat_dots<avx512_amx::TileDots>, avx512_amx::repeat_weights,
                                     avx512_amx::read_all};

}  // namespace headwater::backend::cpu
