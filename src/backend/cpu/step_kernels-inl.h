// A target's table of dense kernels. step_kernels_<target>.cc names the target and includes this file alone.
#pragma once

#include "backend/cpu/products-inl.h"
#include "backend/cpu/rowwise-inl.h"

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

extern const StepKernels kStepKernels;
const StepKernels kStepKernels = {
    quantized_products<Q4_1>,
    quantized_products<Q8_0>,
    plain_products<Float32>,
    plain_products<Float16>,
    plain_products<BFloat16>,
    quantize,
    add_norm,
    silu_mul,
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
