// Matrices for the tests of operations: made on the host, laid into a back end's memory, and read back from it. Random,
// with columns between the rows that nothing may touch.
#pragma once

#include <limits>
#include <map>
#include <span>
#include <vector>

#include "ops/backend.h"

namespace headwater::testing {

// The host's side: all NaN until filled.
class HostMatrix {
 public:
  HostMatrix(uint32_t rows, uint32_t columns, uint32_t padding = 0)
      : rows_(rows),
        columns_(columns),
        stride_(columns + padding),
        data_(uint64_t{rows} * stride_, std::numeric_limits<float>::quiet_NaN()) {}

  HostMatrix& fill(Random& random, float deviation = 1) {
    for (uint32_t r = 0; r < rows_; ++r) {
      for (uint32_t c = 0; c < columns_; ++c) row(r)[c] = deviation * random.normal();
    }
    return *this;
  }
  HostMatrix& fill(float value) {
    for (uint32_t r = 0; r < rows_; ++r) std::fill_n(row(r), columns_, value);
    return *this;
  }
  float* row(uint32_t index) { return data_.data() + uint64_t{index} * stride_; }
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

  uint32_t rows() const { return rows_; }
  uint32_t columns() const { return columns_; }
  uint64_t stride() const { return stride_; }
  std::span<float> image() { return data_; }  // padding included
  std::span<const float> image() const { return data_; }

 private:
  uint32_t rows_;
  uint32_t columns_;
  uint64_t stride_;
  std::vector<float> data_;
};

inline ops::Matrix rows_of(const ops::Matrix& matrix, uint32_t begin, uint32_t count) {
  return {matrix.row(begin), count, matrix.columns, matrix.stride};
}

// Matrices of one back end. It frees them only with itself, so they are used again; each for one size alone, so that a
// memory checker sees a step beyond the end of any of them.
class BackendMemory {
 public:
  explicit BackendMemory(ops::Backend& backend) : backend_(backend) {}
  ops::Backend& backend() const { return backend_; }

  void clear() {  // what was put before is no longer needed
    free_.merge(used_);
  }
  // A view of the columns; the padding lies between the rows.
  ops::Matrix put(const HostMatrix& from) {
    const ops::Matrix all = take(from.image().size());
    const ops::Matrix view{all.data, from.rows(), from.columns(), from.stride()};
    set(view, from);
    return view;
  }
  const float* put(const std::vector<float>& from) {
    const ops::Matrix all = take(from.size());
    expect(backend_.upload(all, from));
    return all.data;
  }
  void set(const ops::Matrix& to, const HostMatrix& from) { expect(backend_.upload(whole(to), from.image())); }
  void get(HostMatrix& to, const ops::Matrix& from) { expect(backend_.download(to.image(), whole(from))); }

 private:
  ops::Matrix take(size_t elements) {
    if (auto known = free_.extract(elements)) return used_.insert(std::move(known))->second;
    const Result<ops::Matrix> fresh = backend_.allocate(1, static_cast<uint32_t>(elements));
    expect(fresh.status());
    return used_.emplace(elements, *fresh)->second;
  }
  static ops::Matrix whole(const ops::Matrix& view) {
    return {view.data, view.rows, static_cast<uint32_t>(view.stride), view.stride};
  }
  static void expect(const Status& status) { check(status.is_ok(), status.message().c_str()); }

  ops::Backend& backend_;
  std::multimap<size_t, ops::Matrix> free_, used_;  // by elements
};

}  // namespace headwater::testing
