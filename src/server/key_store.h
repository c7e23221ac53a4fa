// API keys, kept and compared as keyed hashes (HMAC-SHA-256 under a random key of this process), so that neither a core dump
// nor the time of a comparison says anything about a key.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/core.h"

namespace headwater::server {

class KeyStore {
 public:
  static Result<KeyStore> create(const std::vector<std::string>& keys);  // errors: an empty key, one with spaces

  bool empty() const { return hashes_.empty(); }  // nobody needs a key
  // authorization: the header's value, "Bearer KEY". The index of the key, or nothing. Takes the same time for
  // every wrong key of a length.
  std::optional<size_t> find(std::string_view authorization) const;

 private:
  using Hash = std::array<unsigned char, 32>;
  KeyStore() = default;
  Hash hash(std::string_view key) const;

  Hash secret_{};
  std::vector<Hash> hashes_;
};

}  // namespace headwater::server
