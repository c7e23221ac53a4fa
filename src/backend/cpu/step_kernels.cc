#include "backend/cpu/step_kernels.h"

#include "backend/cpu/targets.h"

namespace headwater::backend::cpu {

namespace scalar {
extern const StepKernels kStepKernels;
}
namespace avx2 {
extern const StepKernels kStepKernels;
}
namespace avx512 {
extern const StepKernels kStepKernels;
}
namespace avx512_bf16 {
extern const StepKernels kStepKernels;
}
namespace avx512_amx {
extern const StepKernels kStepKernels;
}

const StepKernels& step_kernels(Target target) {
  switch (target) {
    case Target::kScalar:
      return scalar::kStepKernels;
    case Target::kAvx2:
      return avx2::kStepKernels;
    case Target::kAvx512:
      return avx512::kStepKernels;
    case Target::kAvx512Bf16:
      return avx512_bf16::kStepKernels;
    case Target::kAvx512Amx:
      return avx512_amx::kStepKernels;
  }
  check(false, "a target without kernels");
  return scalar::kStepKernels;
}

}  // namespace headwater::backend::cpu
