#define HEADWATER_TARGET_NAMESPACE avx512_bf16
#include "backend/cpu/peaks-inl.h"

namespace headwater::backend::cpu {

const PeakKernels kPeaksAvx512Bf16 = {avx512_bf16::VectorDots<avx512_bf16::Bf16Elements>::kRows,
                                      avx512_bf16::repeat_dots<avx512_bf16::VectorDots>,
                                      avx512_bf16::repeat_weights,
                                      avx512_bf16::kByteMultiplyAdds,
                                      avx512_bf16::repeat_byte_dots,
                                      avx512_bf16::read_all};

}  // namespace headwater::backend::cpu
