#define HEADWATER_TARGET_NAMESPACE avx512_amx
#include "backend/cpu/step_kernels-inl.h"
