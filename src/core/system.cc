#include "core/system.h"

#include <sched.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace headwater {
namespace {

uint64_t field_of(const char* path, const std::string& key) {  // value in bytes of a "Key:   123 kB" line
  std::ifstream file(path);
  for (std::string word; file >> word;) {
    uint64_t value = 0;
    if (word == key && file >> value) return value * 1024;
  }
  return 0;
}

uint64_t number_in(const char* path) {  // 0 when missing or not a number ("max")
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : 0;
}

}  // namespace

uint64_t memory_available_bytes() {
  const uint64_t available = field_of("/proc/meminfo", "MemAvailable:");
  const uint64_t limit = number_in("/sys/fs/cgroup/memory.max");
  const uint64_t used = number_in("/sys/fs/cgroup/memory.current");
  return limit > used ? std::min(available, limit - used) : available;
}

uint64_t memory_resident_bytes() {
  return field_of("/proc/self/status", "VmRSS:");
}

uint32_t cores_available() {
  cpu_set_t set;
  CPU_ZERO(&set);
  uint32_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? static_cast<uint32_t>(CPU_COUNT(&set)) : 1;
  std::ifstream quota_file("/sys/fs/cgroup/cpu.max");
  uint64_t quota = 0, period = 0;
  if (quota_file >> quota >> period && period > 0) {
    cores = std::min(cores, static_cast<uint32_t>(std::max<uint64_t>(1, quota / period)));
  }
  return std::max(1u, cores);
}

}  // namespace headwater
