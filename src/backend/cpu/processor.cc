#include "backend/cpu/processor.h"

#include <cpuid.h>
#include <fmt/format.h>

#include <cstring>

namespace headwater::backend::cpu {

std::string processor_name() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0, &a, &b, &c, &d) == 0) return "unknown";
  char vendor[13] = {};
  std::memcpy(vendor, &b, 4);
  std::memcpy(vendor + 4, &d, 4);
  std::memcpy(vendor + 8, &c, 4);
  __get_cpuid(1, &a, &b, &c, &d);
  const unsigned family = (a >> 8) & 15;
  const unsigned model = (a >> 4) & 15;
  const bool extended = family == 6 || family == 15;
  return fmt::format("{} family {} model {} stepping {}", vendor, family == 15 ? family + ((a >> 20) & 255) : family,
                     extended ? model + ((a >> 16) & 15) * 16 : model, a & 15);
}

}  // namespace headwater::backend::cpu
