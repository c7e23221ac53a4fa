// Matrices that the cells of a bench use one after another: a back end frees what it allocates only with itself.
#pragma once

#include <bit>
#include <map>

#include "ops/backend.h"

namespace headwater::bench {

class Matrices {
 public:
  explicit Matrices(ops::Backend& backend) : backend_(backend) {}

  void clear() { free_.merge(used_); }  // what was taken before is no longer needed
  Result<ops::Matrix> take(uint32_t rows, uint32_t columns) {
    const uint64_t elements = std::bit_ceil(uint64_t{rows} * columns);
    auto known = free_.extract(elements);
    if (!known) {
      const auto wide = static_cast<uint32_t>(std::min<uint64_t>(elements, 1u << 20));
      HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix fresh,
                                 backend_.allocate(static_cast<uint32_t>(elements / wide), wide));
      free_.emplace(elements, fresh);
      known = free_.extract(elements);
    }
    const ops::Matrix& memory = used_.insert(std::move(known))->second;
    return ops::Matrix{memory.data, rows, columns, columns};
  }

 private:
  ops::Backend& backend_;
  std::multimap<uint64_t, ops::Matrix> free_, used_;  // by elements, a power of two
};

}  // namespace headwater::bench
