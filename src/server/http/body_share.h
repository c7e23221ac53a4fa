// What one body takes of the memory that all bodies of a listener share, given back with it. Small bodies take nothing, so
// that whoever fills the rest shuts out nobody but others who send or ask for much.
#pragma once

#include <algorithm>
#include <cstdint>

#include "server/http/http.h"

namespace headwater::server::http {

class BodyShare {
 public:
  // all: of every body together; at most limits.bodies_bytes. Both outlive it.
  BodyShare(const Limits& limits, uint64_t& all) : limits_(limits), all_(all) {}
  ~BodyShare() { all_ -= taken_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  bool fits(uint64_t body_bytes) const {
    const uint64_t part = part_of(body_bytes);
    return part == 0 || all_ - taken_ + part <= limits_.bodies_bytes;
  }
  void take(uint64_t body_bytes) {
    all_ += part_of(body_bytes) - taken_;
    taken_ = part_of(body_bytes);
  }

 private:
  static uint64_t part_of(uint64_t body_bytes) { return std::max(body_bytes, kSmallBodyBytes) - kSmallBodyBytes; }

  const Limits& limits_;
  uint64_t& all_;
  uint64_t taken_ = 0;
};

}  // namespace headwater::server::http
