#define HEADWATER_TARGET_NAMESPACE scalar
#include "backend/cpu/peaks-inl.h"

namespace headwater::backend::cpu {

const PeakKernels kPeaksScalar = {scalar::VectorDots<scalar::Bf16Elements>::kRows,
                                  scalar::repeat_dots<scalar::VectorDots>,
                                  scalar::repeat_weights,
                                  scalar::kByteMultiplyAdds,
                                  scalar::repeat_byte_dots,
                                  scalar::read_all};

}  // namespace headwater::backend::cpu
