// Ids that cross rooms.
#pragma once

#include <cstdint>

namespace headwater {

using TokenId = int32_t;  // index into a model's vocabulary
using PageId = uint32_t;  // index of a physical KV page; the same id names the same slots in every layer

inline constexpr PageId kNoPage = 0xffffffffu;

}  // namespace headwater
