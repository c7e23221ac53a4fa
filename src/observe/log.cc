#include "observe/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>

#include <cstring>

namespace headwater::observe {

bool set_log_level(const char* level) {
  const auto parsed = spdlog::level::from_str(level);  // unknown names give off
  if (parsed == spdlog::level::off && std::strcmp(level, "off") != 0) return false;
  static const auto logger = [] {
    auto created = std::make_shared<spdlog::logger>("headwater", std::make_shared<spdlog::sinks::stderr_color_sink_mt>());
    created->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    spdlog::set_default_logger(created);
    return created;
  }();
  logger->set_level(parsed);
  return true;
}

}  // namespace headwater::observe
