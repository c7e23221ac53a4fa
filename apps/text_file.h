// The text of a file that an option names.
#pragma once

#include <string>
#include <string_view>

#include "core/core.h"

namespace headwater::apps {

// All of it; of what has more than bytes_max, such as a device, no end is waited for. path: "-" is stdin. kind: "a YAML file",
// for messages.
Result<std::string> read_text(std::string_view option, const std::string& path, std::string_view kind,
                              size_t bytes_max);

}  // namespace headwater::apps
