// What a back end was asked to do and how long it took, kind by kind: sums that only grow, so that the work of a step
// is the difference of two copies. Fixed arrays: adding to them and copying them allocates nothing.
#pragma once

#include <array>

#include "ops/backend.h"

namespace headwater::bench {

// Everything but products, which are told apart by their shape.
enum class Kind : uint8_t {
  kEmbed,
  kNorm,
  kRopeAppend,
  kAttend,
  kMerge,
  kGateMul,
  kGather,
  kSample,
  kCopy,
  kExperts,
  kCap
};
inline constexpr size_t kKinds = 11;
inline constexpr size_t kProductShapesMax = 16;
inline constexpr size_t kPlaces = kKinds + kProductShapesMax;  // of a WorkTotals: kinds, then shapes of products

struct Work {
  int64_t nanoseconds = 0;
  uint64_t bytes = 0;  // that have to move: the weights of products, the activations of other kinds; 0: not counted
  uint64_t byte_multiply_adds = 0;  // of products with quantised weights
  uint64_t multiply_adds = 0;       // of products, whatever their weights

  Work& operator+=(const Work& other) {
    nanoseconds += other.nanoseconds;
    bytes += other.bytes;
    byte_multiply_adds += other.byte_multiply_adds;
    multiply_adds += other.multiply_adds;
    return *this;
  }
  Work operator-(const Work& other) const {
    return {nanoseconds - other.nanoseconds, bytes - other.bytes, byte_multiply_adds - other.byte_multiply_adds,
            multiply_adds - other.multiply_adds};
  }
  Work operator*(uint32_t times) const {
    return {nanoseconds * times, bytes * times, byte_multiply_adds * times, multiply_adds * times};
  }
};

// Calls whose weights have `columns` inputs and `rows` outputs, all weights of a call together.
struct ProductWork {
  uint64_t columns = 0;  // 0: unused; in the last entry: shapes that found no entry of their own
  uint64_t rows = 0;
  Work work;
};

struct WorkTotals {
  std::array<Work, kKinds> kinds{};
  std::array<ProductWork, kProductShapesMax> products{};  // in the order of their first call
  uint64_t token_keys = 0;  // (query token, visible key) pairs of one layer, without a sliding window

  Work& of(Kind kind) { return kinds[static_cast<size_t>(kind)]; }
  const Work& of(Kind kind) const { return kinds[static_cast<size_t>(kind)]; }

  Work& at(size_t place) { return place < kKinds ? kinds[place] : products[place - kKinds].work; }

  // Returns its place.
  size_t add_product(const ops::MatmulParams& params, int64_t nanoseconds) {
    uint64_t rows = 0;
    Work work{.nanoseconds = nanoseconds};
    for (const ops::Product& product : params.products) {
      const ops::Weight& weight = *product.weight;
      rows += weight.rows();
      work.bytes += weight.rows() * row_bytes(weight.dtype(), weight.columns());
      const uint64_t multiply_adds = weight.rows() * weight.columns() * params.x.rows;
      work.multiply_adds += multiply_adds;
      if (block_elements(weight.dtype()) > 1) work.byte_multiply_adds += multiply_adds;
    }
    ProductWork& product = entry(params.x.columns, rows);
    product.work += work;
    return kKinds + static_cast<size_t>(&product - products.data());
  }

  void add_token_keys(const attention::PageTable& table) {
    for (uint32_t r = 0; r < table.sequences(); ++r) {
      const uint64_t q_len = table.q_indptr[r + 1] - table.q_indptr[r];
      if (table.kv_len[r] > 0) token_keys += q_len * table.kv_len[r] - q_len * (q_len - 1) / 2;
    }
  }

  // What was added since `before`, an earlier copy.
  WorkTotals since(const WorkTotals& before) const {
    WorkTotals difference = *this;
    for (size_t i = 0; i < kKinds; ++i) difference.kinds[i] = kinds[i] - before.kinds[i];
    for (size_t i = 0; i < kProductShapesMax; ++i) {
      difference.products[i].work = products[i].work - before.products[i].work;
    }
    difference.token_keys -= before.token_keys;
    return difference;
  }

 private:
  ProductWork& entry(uint64_t columns, uint64_t rows) {
    for (size_t i = 0; i + 1 < kProductShapesMax; ++i) {
      ProductWork& product = products[i];
      if (product.columns == 0) product = {columns, rows, {}};
      if (product.columns == columns && product.rows == rows) return product;
    }
    return products.back();
  }
};

}  // namespace headwater::bench
