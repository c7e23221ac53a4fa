// What Linux says about this process, as Prometheus clients report it.
#pragma once

#include <cstdint>

namespace headwater::server {

struct ProcessStats {
  uint64_t resident_bytes = 0;
  uint64_t open_files = 0;
  double cpu_seconds = 0;         // user and system
  double start_time_seconds = 0;  // Unix time
};

// Reads /proc; what cannot be read is 0.
ProcessStats read_process_stats();

}  // namespace headwater::server
