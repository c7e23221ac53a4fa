#include "server/http/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509err.h>

#include <fstream>
#include <memory>

namespace headwater::server::http {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

Status readable(const std::string& path, const char* what) {
  std::ifstream file(path, std::ios::binary);
  if (file.is_open() && (file.peek(), !file.bad())) return Status();
  return error(ErrorCode::kNotFound, "the TLS {} file '{}' cannot be read: check its path and permissions", what, path);
}

}  // namespace

Result<ssl::context> load_tls(const TlsFiles& files) {
  if (files.certificate.empty() || files.key.empty())
    return error(ErrorCode::kInvalidArgument, "TLS needs a certificate file and a key file, but the {} is missing",
                 files.certificate.empty() ? "certificate" : "key");
  HEADWATER_RETURN_IF_ERROR(readable(files.certificate, "certificate"));
  HEADWATER_RETURN_IF_ERROR(readable(files.key, "key"));

  ssl::context context(ssl::context::tls_server);
  SSL_CTX_set_min_proto_version(context.native_handle(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.native_handle(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  const auto passphrase_asked = std::make_shared<bool>(false);
  error_code failed;
  context.set_password_callback(
      [passphrase_asked](size_t, ssl::context::password_purpose) {
        *passphrase_asked = true;
        return std::string();
      },
      failed);

  context.use_certificate_chain_file(files.certificate, failed);
  if (failed)
    return error(ErrorCode::kCorrupt,
                 "'{}' holds no certificate chain in PEM ({}): expected '-----BEGIN CERTIFICATE-----'",
                 files.certificate, failed.message());
  context.use_private_key_file(files.key, ssl::context::pem, failed);
  if (*passphrase_asked)
    return error(ErrorCode::kUnsupported,
                 "the TLS key '{}' needs a passphrase: decrypt it (openssl pkey -in ... -out ...)", files.key);
  // With the certificate loaded, OpenSSL compares the key to it at once.
  if (failed && ERR_GET_REASON(static_cast<unsigned long>(failed.value())) == X509_R_KEY_VALUES_MISMATCH)
    return error(ErrorCode::kInvalidArgument,
                 "the TLS key '{}' does not belong to the certificate '{}': give the pair that "
                 "was issued together",
                 files.key, files.certificate);
  if (failed)
    return error(ErrorCode::kCorrupt, "'{}' holds no private key in PEM ({}): expected '-----BEGIN PRIVATE KEY-----'",
                 files.key, failed.message());
  return context;
}

}  // namespace headwater::server::http
