#define HEADWATER_TARGET_NAMESPACE avx512_bf16
#include "backend/cpu/step_kernels-inl.h"
