// Memory of weights, many in one mapping. A weight of a few hundred KiB would by itself be too small for the system's
// huge pages of 2 MiB, and reading all weights once a token would wait for the translation of 4 KiB pages.
#pragma once

#include <cstddef>
#include <memory>

#include "core/core.h"

namespace headwater::backend::cpu {

class WeightMemory {
 public:
  // Lives as long as somebody holds it; its mapping is freed with the last of its pieces.
  struct Piece {
    std::shared_ptr<Buffer> mapping;
    std::byte* data = nullptr;
  };

  // Zeroed, aligned to 64 bytes. kExhausted without memory.
  Result<Piece> take(uint64_t bytes);

 private:
  std::shared_ptr<Buffer> mapping_;
  uint64_t used_ = 0;
};

}  // namespace headwater::backend::cpu
