#define HEADWATER_TARGET_NAMESPACE avx2
#include "backend/cpu/step_kernels-inl.h"
