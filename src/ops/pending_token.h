// What stands in a step block for a token that the host does not know yet: which row of the sample() before chooses it.
// Negative, so it is no token's id.
#pragma once

#include <cstdint>

#include "core/ids.h"
#include "core/on_device.h"

namespace headwater::ops {

HEADWATER_ON_DEVICE constexpr TokenId pending_token(uint32_t row) {
  return static_cast<TokenId>(~row);
}
HEADWATER_ON_DEVICE constexpr uint32_t pending_row(TokenId token) {  // of a negative one
  return ~static_cast<uint32_t>(token);
}

}  // namespace headwater::ops
