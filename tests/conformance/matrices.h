// Host matrices for the tests of single operations: random, with columns between the rows that nothing may touch.
#pragma once

#include <limits>
#include <vector>

#include "ops/backend.h"

namespace headwater::testing {

class HostMatrix {
 public:
  HostMatrix(uint32_t rows, uint32_t columns, uint32_t padding = 0)
      : rows_(rows),
        columns_(columns),
        stride_(columns + padding),
        data_(uint64_t{rows} * stride_, std::numeric_limits<float>::quiet_NaN()) {}

  HostMatrix& fill(Random& random, float deviation = 1) {
    for (uint32_t r = 0; r < rows_; ++r) {
      for (uint32_t c = 0; c < columns_; ++c) data_[r * stride_ + c] = deviation * random.normal();
    }
    return *this;
  }
  ops::Matrix view() { return {data_.data(), rows_, columns_, stride_}; }
  ops::Matrix rows(uint32_t begin, uint32_t count) {
    return {data_.data() + begin * stride_, count, columns_, stride_};
  }
  std::vector<float> values() const {  // without the padding
    std::vector<float> values;
    for (uint32_t r = 0; r < rows_; ++r) {
      values.insert(values.end(), data_.begin() + static_cast<ptrdiff_t>(r * stride_),
                    data_.begin() + static_cast<ptrdiff_t>(r * stride_ + columns_));
    }
    return values;
  }
  // The padding still holds the NaN it was made with.
  bool is_padding_untouched() const {
    for (uint32_t r = 0; r < rows_; ++r) {
      for (uint64_t c = columns_; c < stride_; ++c) {
        if (data_[r * stride_ + c] == data_[r * stride_ + c]) return false;
      }
    }
    return true;
  }

 private:
  uint32_t rows_;
  uint32_t columns_;
  uint64_t stride_;
  std::vector<float> data_;
};

}  // namespace headwater::testing
