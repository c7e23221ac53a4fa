// The server's side of TLS: 1.2 or newer, certificate and key from PEM files.
#pragma once

#include <boost/asio/ssl/context.hpp>

#include "server/http/http.h"

namespace headwater::server::http {

// Errors name the file and what to do about it. A key with a passphrase is refused: nobody is there to be asked.
Result<boost::asio::ssl::context> load_tls(const TlsFiles& files);

}  // namespace headwater::server::http
