// What stands between the halves of a feed-forward block.
#pragma once

#include <cstdint>

namespace headwater::ops {

// kSilu: silu(g) * u. kGeluTanh: gelu(g) * u with the tanh approximation (Gemma).
// kSwigluClamped: with g' = min(g, 7), u' = clamp(u, -7, 7): g' * sigmoid(1.702 g') * (u' + 1) (gpt-oss).
enum class Activation : uint8_t { kSilu, kGeluTanh, kSwigluClamped };

}  // namespace headwater::ops
