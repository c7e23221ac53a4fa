#include "server/key_store.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <algorithm>

namespace headwater::server {
namespace {

bool equal_without_case(std::string_view a, std::string_view lower) {
  return std::ranges::equal(a, lower, {}, [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
}

}  // namespace

Result<KeyStore> KeyStore::create(const std::vector<std::string>& keys) {
  KeyStore store;
  if (RAND_bytes(store.secret_.data(), static_cast<int>(store.secret_.size())) != 1) {
    return error(ErrorCode::kInternal, "the system gave no random bytes for the key store");
  }
  for (const std::string& key : keys) {
    const bool printable = std::ranges::all_of(key, [](char c) { return c > ' ' && c < 0x7f; });
    if (key.empty() || !printable) {
      return error(ErrorCode::kInvalidArgument,
                   "API key {} is empty or has characters outside printable ASCII; clients could not send it",
                   store.hashes_.size() + 1);
    }
    store.hashes_.push_back(store.hash(key));
  }
  return store;
}

KeyStore::Hash KeyStore::hash(std::string_view key) const {
  Hash out{};
  unsigned int size = 0;
  HMAC(EVP_sha256(), secret_.data(), static_cast<int>(secret_.size()),
       reinterpret_cast<const unsigned char*>(key.data()), key.size(), out.data(), &size);
  check(size == out.size(), "SHA-256 gave a hash of another size");
  return out;
}

std::optional<size_t> KeyStore::find(std::string_view authorization) const {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size() || !equal_without_case(authorization.substr(0, kScheme.size()), kScheme)) {
    return std::nullopt;
  }
  const Hash asked = hash(authorization.substr(kScheme.size()));
  std::optional<size_t> found;
  for (size_t i = 0; i < hashes_.size(); ++i) {  // all of them, whichever it is
    if (CRYPTO_memcmp(asked.data(), hashes_[i].data(), asked.size()) == 0) found = i;
  }
  return found;
}

}  // namespace headwater::server
