#define HEADWATER_TARGET_NAMESPACE avx512
#include "backend/cpu/peaks-inl.h"

namespace headwater::backend::cpu {

const PeakKernels kPeaksAvx512 = {avx512::VectorDots<avx512::Bf16Elements>::kRows,
                                  avx512::repeat_dots<avx512::VectorDots>,
                                  avx512::repeat_weights,
                                  avx512::kByteMultiplyAdds,
                                  avx512::repeat_byte_dots,
                                  avx512::read_all};

}  // namespace headwater::backend::cpu
