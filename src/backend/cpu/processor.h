// Which processor this is, as far as measured costs depend on it.
#pragma once

#include <string>

namespace headwater::backend::cpu {

// "GenuineIntel family 6 model 207 stepping 2" (CPUID leaves 0 and 1).
std::string processor_name();

}  // namespace headwater::backend::cpu
