// What the machine has, as the program start prints it.
#pragma once

#include <cstdint>

namespace headwater {

uint64_t memory_available_bytes();  // the smaller of MemAvailable and the cgroup's limit less its use; 0 when unknown
uint64_t memory_resident_bytes();   // of this process
uint32_t cores_available();         // that this process may run on (affinity, cgroup quota), at least 1

}  // namespace headwater
