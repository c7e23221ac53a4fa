// The instruction sets that the kernels are compiled for, and which of them this processor has.
//
// Kernel files are compiled once per target: <kernels>_<target>.cc sets HEADWATER_TARGET_NAMESPACE and includes
// <kernels>-inl.h; CMakeLists.txt gives the file the target's compiler options. Such a file includes only
// <immintrin.h>, <cstdint>, <cstddef> and headers of plain structs, and everything in a -inl.h lies in the target's
// namespace: an inline function of another header, compiled with AVX-512, could be the copy that the linker keeps for
// everybody.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::backend::cpu {

enum class Target : uint8_t {
  kScalar,      // baseline x86-64 (SSE2)
  kAvx2,        // AVX2, FMA, F16C
  kAvx512,      // + AVX-512 F, BW, DQ, VL
  kAvx512Bf16,  // + AVX-512 VNNI, BF16
  kAvx512Amx,   // + AMX tiles with BF16 and INT8, which the system must also grant to the process
};

const char* to_string(Target target);
std::span<const Target> all_targets();  // the simplest first
bool is_available(Target target);       // the processor and the system's register saving have it
std::vector<Target> available_targets();
std::vector<std::string> available_names();

// The target of that name; "": the best available one. kInvalidArgument for a name that is unknown, kUnsupported for a
// target that this processor lacks; both list what it has.
Result<Target> choose_target(std::string_view name);

}  // namespace headwater::backend::cpu
