// Measured attention costs on disk: written by `headwater tune`, read by every command that runs attention. One JSON object:
//   {"version", "date", "backend", "device", "workers", "targets": {"avx512_amx": {"bf16.pass": 0.4, ...}, ...}}
// A file that is damaged or was measured elsewhere is never an error: it is ignored with one line in the log.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "ops/backend.h"

namespace headwater::apps {

struct CostsFile {
  uint32_t version = 0;  // ops::BackendInfo::costs_version
  std::string date;      // 2026-11-30
  std::string backend, device;
  uint32_t workers = 0;
  std::map<std::string, ops::Costs> targets;
};

// $XDG_CACHE_HOME/headwater/costs.json, or below ~/.cache; "" when neither variable is set.
std::string default_costs_path();

std::string costs_json(const CostsFile& file);
Result<CostsFile> parse_costs(std::string_view text);   // kCorrupt
Result<CostsFile> read_costs(const std::string& path);  // also kNotFound
// Makes the folder, and a file that is there whole or not at all. kInvalidArgument where something else than a file has the name.
Status write_costs(const std::string& path, const CostsFile& file);
Status check_costs_place(const std::string& path);  // whether write_costs() can begin

// The entry for the back end. kUnsupported says what differs.
Result<ops::Costs> costs_for(const CostsFile& file, const ops::BackendInfo& info);

// setting: auto (the file at the default path, if there is one), none, or a file. Where the back end's costs come from now:
// "built in", or "from FILE, DATE".
std::string use_costs(const std::string& setting, ops::Backend& backend);

}  // namespace headwater::apps
