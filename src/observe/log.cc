#include "observe/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstring>

namespace headwater::observe {
namespace {

constexpr const char* kName = "headwater";

}  // namespace

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> own = [] {
    auto created = std::make_shared<spdlog::logger>(kName, std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    created->set_level(spdlog::level::warn);
    return created;
  }();
  spdlog::logger* installed = spdlog::default_logger_raw();
  return installed != nullptr && installed->name() == kName ? *installed : *own;
}

bool set_log_level(const char* level) {
  const auto parsed = spdlog::level::from_str(level);  // unknown names give off
  if (parsed == spdlog::level::off && std::strcmp(level, "off") != 0) return false;
  logger().set_level(parsed);
  return true;
}

}  // namespace headwater::observe
