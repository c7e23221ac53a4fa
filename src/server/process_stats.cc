#include "server/process_stats.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "core/system.h"

namespace headwater::server {
namespace {

uint64_t count_open_files() {
  std::error_code failed;
  const std::filesystem::directory_iterator files("/proc/self/fd", failed);
  return failed ? 0 : static_cast<uint64_t>(std::distance(begin(files), end(files))) - 1;  // less the one that lists
}

uint64_t boot_time_seconds() {
  std::ifstream in("/proc/stat");
  std::string word;
  while (in >> word && word != "btime") {
  }
  uint64_t seconds = 0;
  in >> seconds;
  return seconds;
}

}  // namespace

ProcessStats read_process_stats() {
  ProcessStats stats;
  stats.resident_bytes = memory_resident_bytes();
  stats.open_files = count_open_files();

  // proc(5): fields 14, 15 and 22 are utime, stime and starttime in ticks. The second, a name, may hold anything but ends
  // with the last ')'.
  std::ifstream in("/proc/self/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream fields(line.substr(std::min(line.rfind(')'), line.size() - 1) + 1));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  uint64_t user = 0, system = 0, started = 0;
  fields >> user >> system;
  for (int field = 16; field < 22; ++field) fields >> skipped;
  fields >> started;
  const auto ticks = static_cast<double>(sysconf(_SC_CLK_TCK));
  stats.cpu_seconds = static_cast<double>(user + system) / ticks;
  stats.start_time_seconds = static_cast<double>(boot_time_seconds()) + static_cast<double>(started) / ticks;
  return stats;
}

}  // namespace headwater::server
