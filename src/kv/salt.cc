#include "kv/salt.h"

#include <span>

#include "kv/sip_hash.h"

namespace headwater::kv {

Salt make_salt(std::string_view text) {
  if (text.empty()) return {};
  constexpr uint64_t kKey[2] = {0, 0};
  const Hash128 hash = SipHash128(kKey).finish(std::as_bytes(std::span(text)));
  return {hash.low, hash.high};
}

}  // namespace headwater::kv
