// What a file is that is no model file we read: said in messages, so that its owner knows what to do.
#pragma once

#include <span>
#include <string_view>

namespace headwater::model {

// "; it is a zip archive, ...", or nothing when its first bytes tell nothing.
std::string_view foreign_file(std::span<const std::byte> bytes);

}  // namespace headwater::model
