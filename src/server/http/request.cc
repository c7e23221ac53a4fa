#include "server/http/request.h"

#include <algorithm>
#include <boost/beast/core/string.hpp>
#include <boost/beast/http/error.hpp>

namespace headwater::server::http {
namespace {

namespace wire = boost::beast::http;
using boost::beast::iequals;

// "http://host:8000/v1/models?x" -> "/v1/models?x"; everything else as it is.
std::string_view origin_form(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !iequals(target.substr(0, scheme.size()), scheme)) continue;
    const size_t path = target.find_first_of("/?", scheme.size());
    return path == std::string_view::npos ? "/" : target.substr(path);
  }
  return target;
}

}  // namespace

Request::Request(const Limits& limits, uint64_t& bodies_bytes) : limits_(limits), share_(limits, bodies_bytes) {
  header_limit(limits.header_bytes);
  body_limit(limits.body_bytes);
}

size_t Request::parse(std::string_view bytes) {
  if (failure_) return 0;
  const bool in_header = !is_header_done();
  eager(!in_header);
  error_code error;
  const size_t used = put({bytes.data(), bytes.size()}, error);
  if (error && error != wire::error::need_more) {
    if (!failure_) failure_ = failure_of(error);
    if (in_header && !header_complete_ && !bytes.empty() && bytes[0] == '\x16' && method_.empty())
      failure_->message = "These bytes look like TLS, but this port speaks plain HTTP. Use http:// in the address.";
    return used;
  }
  if (in_header) {
    header_bytes_ += used;
    if (header_bytes_ + (is_header_done() ? 0 : bytes.size() - used) > limits_.header_bytes) fail_oversized();
  }
  return used;
}

void Request::fail_oversized() {
  if (header_complete_)
    failure_ = Failure{400, "A chunk's size line or the trailers are too long. Send chunks without extensions."};
  else
    failure_ = failure_of(wire::error::header_limit);
}

bool Request::expects_continue() const {
  return version_ >= 11 && !is_done() && iequals(header("Expect"), "100-continue");
}

std::string_view Request::query() const {
  const size_t mark = target_.find('?');
  return mark == std::string::npos ? std::string_view() : std::string_view(target_).substr(mark + 1);
}

std::string_view Request::header(std::string_view name) const {
  for (const auto& [field_name, value] : fields_)
    if (iequals(field_name, name)) return value;
  return {};
}

void Request::on_request_impl(verb, string_view method, string_view target, int version, error_code&) {
  method_.assign(method.data(), method.size());
  target_ = origin_form({target.data(), target.size()});
  version_ = static_cast<unsigned>(version);
}

void Request::on_field_impl(field id, string_view name, string_view value, error_code& error) {
  if (++fields_seen_ > limits_.headers)
    return fail(431, fmt::format("The request has more than {} header fields. Send fewer.", limits_.headers), error);
  if (header_complete_) return;  // a trailer: it may not change what was decided by the header
  if (id == field::transfer_encoding && (!iequals(value, "chunked") || version_ < 11))
    return fail(400, "The only Transfer-Encoding accepted is 'chunked', with HTTP/1.1. Send the body plain or chunked.",
                error);
  const auto is_digit = [](char letter) { return letter >= '0' && letter <= '9'; };
  if (id == field::content_length && (++lengths_ > 1 || !std::all_of(value.begin(), value.end(), is_digit)))
    return fail(400, "The request needs one Content-Length, a decimal number. Send it once.", error);
  if (id == field::host) ++hosts_;
  fields_.emplace_back(std::string(name.data(), name.size()), std::string(value.data(), value.size()));
}

void Request::on_header_impl(error_code& error) {
  header_complete_ = true;
  if (hosts_ > 1 || (hosts_ == 0 && version_ >= 11))
    fail(400, fmt::format("The request has {} Host fields. HTTP/1.1 needs exactly one.", hosts_), error);
}

size_t Request::on_body_impl(string_view bytes, error_code& error) {
  if (!share_.fits(body_.size() + bytes.size())) {
    fail(503,
         fmt::format("Requests and answers fill all {} bytes there are for large ones. Try again later.",
                     limits_.bodies_bytes),
         error);
    return 0;
  }
  body_.append(bytes.data(), bytes.size());
  share_.take(body_.capacity());
  return bytes.size();
}

size_t Request::on_chunk_body_impl(uint64_t, string_view bytes, error_code& error) {
  return on_body_impl(bytes, error);
}

void Request::fail(unsigned status, std::string message, error_code& error) {
  failure_ = Failure{status, std::move(message)};
  error = wire::error::bad_value;
}

Failure Request::failure_of(error_code error) const {
  if (error == wire::error::body_limit)
    return {413, fmt::format("The body is larger than {} bytes. Send a shorter one.", limits_.body_bytes)};
  if (error == wire::error::header_limit)
    return {431, fmt::format("The request line and header fields are larger than {} bytes. Send fewer or shorter ones.",
                             limits_.header_bytes)};
  if (error == wire::error::bad_version) return {400, "The HTTP version is not supported. Use HTTP/1.1."};
  return {400, fmt::format("The request is not valid HTTP/1.1 ({}). Check the client or the proxy in front.",
                           error.message())};
}

}  // namespace headwater::server::http
