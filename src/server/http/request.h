// One request as it arrives: Beast's HTTP/1 parser with this room's limits and strictness on top.
//
// What Beast leaves open and this closes: the number of header fields, the size of a header that arrives line by line, a
// Transfer-Encoding other than "chunked" (Beast would see a request without a body there, a proxy in front another one), two
// Content-Length or Host fields, a missing Host, trailers that pose as header fields, memory taken because a Content-Length
// promises bytes.
#pragma once

#include <boost/beast/http/basic_parser.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "server/http/body_share.h"
#include "server/http/http.h"

namespace headwater::server::http {

// What is wrong with a request, as Application::failure() is told.
struct Failure {
  unsigned status = 400;
  std::string message;
};

class Request final : public RequestHead, private boost::beast::http::basic_parser<true> {
 public:
  // bodies_bytes: of all bodies; this one takes its share while it lives.
  Request(const Limits& limits, uint64_t& bodies_bytes);

  // Parses the front of `bytes`, first up to the end of the header, after is_header_done() up to the end of the request, and
  // returns how many bytes are used up. The rest is to be offered again, with more behind it.
  size_t parse(std::string_view bytes);
  // No buffer has room for what would come next.
  void fail_oversized();
  const std::optional<Failure>& failure() const { return failure_; }

  using basic_parser::is_done;
  using basic_parser::is_header_done;
  using basic_parser::keep_alive;
  unsigned version() const { return version_; }  // 10 or 11
  bool expects_continue() const;
  std::string take_body() { return std::move(body_); }
  void give_back_share() { share_.take(0); }

  std::string_view method() const override { return method_; }
  std::string_view path() const override { return std::string_view(target_).substr(0, target_.find('?')); }
  std::string_view query() const override;
  std::string_view header(std::string_view name) const override;

 private:
  using error_code = boost::system::error_code;
  using string_view = boost::beast::string_view;
  using verb = boost::beast::http::verb;
  using field = boost::beast::http::field;

  void on_request_impl(verb, string_view method, string_view target, int version, error_code&) override;
  void on_response_impl(int, string_view, int, error_code&) override {}
  void on_field_impl(field id, string_view name, string_view value, error_code& error) override;
  void on_header_impl(error_code& error) override;
  void on_body_init_impl(const boost::optional<uint64_t>&, error_code&) override {}
  size_t on_body_impl(string_view bytes, error_code& error) override;
  void on_chunk_header_impl(uint64_t, string_view, error_code&) override {}
  size_t on_chunk_body_impl(uint64_t remaining, string_view bytes, error_code& error) override;
  void on_finish_impl(error_code&) override {}

  void fail(unsigned status, std::string message, error_code& error);
  Failure failure_of(error_code error) const;

  const Limits& limits_;
  BodyShare share_;
  std::string method_;
  std::string target_;
  Headers fields_;
  std::string body_;
  std::optional<Failure> failure_;
  uint64_t header_bytes_ = 0;  // used up so far
  uint32_t fields_seen_ = 0;   // trailers included
  uint32_t hosts_ = 0;
  uint32_t lengths_ = 0;
  unsigned version_ = 11;
  bool header_complete_ = false;
};

}  // namespace headwater::server::http
