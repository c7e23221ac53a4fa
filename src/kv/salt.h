// Separates prefixes that must not be shared (tenants). Equal salts share; the empty salt is one of them.
#pragma once

#include <cstdint>
#include <string_view>

namespace headwater::kv {

struct Salt {
  uint64_t low = 0;
  uint64_t high = 0;
  bool operator==(const Salt&) const = default;
};

Salt make_salt(std::string_view text);  // SipHash-2-4-128 of the text under a constant key; "" gives {0, 0}

}  // namespace headwater::kv
