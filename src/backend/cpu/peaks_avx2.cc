#define HEADWATER_TARGET_NAMESPACE avx2
#include "backend/cpu/peaks-inl.h"

namespace headwater::backend::cpu {

const PeakKernels kPeaksAvx2 = {avx2::VectorDots<avx2::Bf16Elements>::kRows,
                                avx2::repeat_dots<avx2::VectorDots>,
                                avx2::repeat_weights,
                                avx2::kByteMultiplyAdds,
                                avx2::repeat_byte_dots,
                                avx2::read_all};

}  // namespace headwater::backend::cpu
