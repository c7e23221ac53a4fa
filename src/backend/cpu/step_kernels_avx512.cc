#define HEADWATER_TARGET_NAMESPACE avx512
#include "backend/cpu/step_kernels-inl.h"
