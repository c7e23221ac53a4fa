// A target's table of dense kernels. step_kernels_<target>.cc names the target and includes this file alone.
#pragma once

#include "backend/cpu/products-inl.h"
#include "backend/cpu/rowwise-inl.h"
#if defined(__AMX_INT8__)
#include "backend/cpu/byte_tiles-inl.h"
#endif

namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE {

#if defined(__AMX_INT8__)
template <typename Format>
static constexpr StepKernels::Products kQuantizedProducts = tiled_products<Format>;
#else
template <typename Format>
static constexpr StepKernels::Products kQuantizedProducts = quantized_products<Format>;
#endif

extern const StepKernels kStepKernels;
const StepKernels kStepKernels = {
    kQuantizedProducts<Q4_0>,
    kQuantizedProducts<Q4_1>,
    kQuantizedProducts<Q8_0>,
    plain_products<Float32>,
    plain_products<Float16>,
    plain_products<BFloat16>,
    quantize,
    add_norm,
    gate_mul<Silu>,
    gate_mul<GeluTanh>,
    gate_mul<SwigluClamped>,
    cap,
};

}  // namespace headwater::backend::cpu::HEADWATER_TARGET_NAMESPACE
