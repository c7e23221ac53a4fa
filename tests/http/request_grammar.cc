#include "http/request_grammar.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace headwater::test {
namespace {

using namespace std::string_view_literals;

class Grammar {
 public:
  explicit Grammar(std::mt19937& random) : random_(random) {}

  std::string stream() {
    std::string bytes;
    for (size_t requests = 1 + below(4); requests > 0; --requests) bytes += request();
    for (size_t damages = below(5); damages > 0; --damages) damage(bytes);
    return bytes;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  bool one_in(size_t count) { return below(count) == 0; }

  template <size_t kCount>
  std::string_view any(const std::array<std::string_view, kCount>& words) {
    return words[below(kCount)];
  }

  std::string text(size_t length) {
    std::string bytes(length, 'a');
    for (char& byte : bytes) byte = one_in(4) ? static_cast<char>(below(256)) : static_cast<char>('a' + below(26));
    return bytes;
  }

  std::string request() {
    static constexpr std::array kMethods{"GET"sv, "POST"sv,    "POST"sv,    "HEAD"sv,
                                         "PUT"sv, "OPTIONS"sv, "CONNECT"sv, "get"sv};
    static constexpr std::array kTargets{
        "/echo"sv,         "/echo?a=b"sv,          "/stream"sv, "/refuse"sv, "/empty"sv, "/throw"sv, "*"sv, "a:1"sv,
        "http://a/echo"sv, "/large?bytes=50000"sv, "/nothing"sv};
    static constexpr std::array kVersions{"HTTP/1.0"sv, "HTTP/2.0"sv, "HTTP/1.2"sv, "http/1.1"sv, ""sv};
    const std::string_view version = one_in(8) ? any(kVersions) : "HTTP/1.1"sv;
    std::string bytes = fmt::format("{} {} {}\r\n", any(kMethods), any(kTargets), version);
    if (!one_in(20)) bytes += "Host: here\r\n";
    for (size_t count = one_in(30) ? below(200) : below(4); count > 0; --count) bytes += odd_field();
    return one_in(3) ? bytes + "\r\n" : one_in(2) ? bytes + sized_body() : bytes + chunked_body();
  }

  std::string odd_field() {
    static constexpr std::array kFields{"Connection: close\r\n"sv,
                                        "Connection: keep-alive\r\n"sv,
                                        "Expect: 100-continue\r\n"sv,
                                        "Host: twice\r\n"sv,
                                        "Content-Length: 0\r\n"sv,
                                        "Content-Length: 1000000000\r\n"sv,
                                        "A:\r\n  folded\r\n"sv,
                                        "A: b\r\n"sv,
                                        "A : b\r\n"sv,
                                        "Transfer-Encoding: gzip\r\n"sv,
                                        "Upgrade: h2c\r\n"sv,
                                        "Content-Length: -5\r\n"sv,
                                        "Transfer-Encoding: x, chunked\r\n"sv};
    if (one_in(50)) return fmt::format("Long: {}\r\n", std::string(below(20'000), 'l'));
    if (one_in(2)) return fmt::format("A{}: b\r\n", below(100));
    return std::string(any(kFields));
  }

  std::string sized_body() {
    const size_t length = one_in(20) ? below(100'000) : below(300);
    const size_t told = one_in(8) ? below(400) : length;
    return fmt::format("Content-Length: {}\r\n\r\n{}", told, text(length));
  }

  std::string chunked_body() {
    std::string bytes = "Transfer-Encoding: chunked\r\n\r\n";
    for (size_t chunks = below(6); chunks > 0; --chunks) {
      const size_t length = 1 + (one_in(20) ? below(40'000) : below(200));
      const size_t told = one_in(15) ? random_() : length;
      bytes += fmt::format("{:x}{}\r\n{}\r\n", told, one_in(8) ? ";a=\"b\"" : "", text(length));
    }
    return bytes + (one_in(8) ? "0\r\nTrailer: a\r\nContent-Length: 3\r\n\r\n" : "0\r\n\r\n");
  }

  void damage(std::string& bytes) {
    if (bytes.empty()) return;
    const size_t at = below(bytes.size());
    const size_t length = 1 + below(one_in(3) ? bytes.size() : 8);
    switch (below(7)) {
      case 0:
        bytes.resize(at);
        break;
      case 1:
        bytes.erase(at, length);
        break;
      case 2:
        bytes.insert(at, bytes.substr(at, length));
        break;
      case 3:
        bytes.insert(at, text(length));
        break;
      case 4:
        bytes[at] = static_cast<char>(below(256));
        break;
      case 5:
        bytes.insert(at, one_in(2) ? "\r\n" : "\r\n\r\n");
        break;
      case 6:
        if (const size_t line = bytes.find("\r\n", at); line != std::string::npos) bytes.erase(line, 1);
        break;
    }
  }

  std::mt19937& random_;
};

}  // namespace

std::string random_stream(std::mt19937& random) {
  return Grammar(random).stream();
}

}  // namespace headwater::test
