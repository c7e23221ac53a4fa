#define HEADWATER_TARGET_NAMESPACE scalar
#include "backend/cpu/step_kernels-inl.h"
