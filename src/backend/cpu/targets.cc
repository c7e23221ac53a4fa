#include "backend/cpu/targets.h"

#include <cpuid.h>
#include <fmt/ranges.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <iterator>

namespace headwater::backend::cpu {
namespace {

constexpr std::array kTargets = {Target::kScalar, Target::kAvx2, Target::kAvx512, Target::kAvx512Bf16,
                                 Target::kAvx512Amx};
constexpr std::array kNames = {"scalar", "avx2", "avx512", "avx512_bf16", "avx512_amx"};

// CPUID leaf 7: AMX-BF16, AMX-TILE and AMX-INT8 (GCC 12 and Clang 14 cannot ask by name).
bool has_amx() {
  constexpr unsigned kBits = 1u << 22 | 1u << 24 | 1u << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kBits) == kBits;
}

// Tile data makes a thread's saved state 8 KiB larger; Linux wants to be asked once for the process.
bool may_use_amx() {
  constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr long kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

const char* to_string(Target target) {
  return kNames[static_cast<size_t>(target)];
}

std::span<const Target> all_targets() {
  return kTargets;
}

// __builtin_cpu_supports also asks whether the system saves the wide registers (XGETBV). Clang 14 cannot ask for F16C,
// which every processor with AVX2 has.
bool is_available(Target target) {
  __builtin_cpu_init();
  switch (target) {
    case Target::kScalar:
      return true;
    case Target::kAvx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    case Target::kAvx512:
      return is_available(Target::kAvx2) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    case Target::kAvx512Bf16:
      return is_available(Target::kAvx512) && __builtin_cpu_supports("avx512vnni") &&
             __builtin_cpu_supports("avx512bf16");
    case Target::kAvx512Amx:
      return is_available(Target::kAvx512Bf16) && has_amx() && may_use_amx();
  }
  return false;
}

std::vector<Target> available_targets() {
  std::vector<Target> targets;
  std::ranges::copy_if(kTargets, std::back_inserter(targets), is_available);
  return targets;
}

std::vector<std::string> available_names() {
  std::vector<std::string> names;
  for (const Target target : available_targets()) names.emplace_back(to_string(target));
  return names;
}

Result<Target> choose_target(std::string_view name) {
  if (name.empty()) {
    return available_targets().back();
  }
  for (const Target target : kTargets) {
    if (name != to_string(target)) continue;
    if (is_available(target)) return target;
    return error(ErrorCode::kUnsupported, "this processor has no {}; it has {}", name,
                 fmt::join(available_names(), ", "));
  }
  return error(ErrorCode::kInvalidArgument, "unknown CPU target '{}'; this processor has {}", name,
               fmt::join(available_names(), ", "));
}

}  // namespace headwater::backend::cpu
