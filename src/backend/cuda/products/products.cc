#include "backend/cuda/products/products.h"

#include <algorithm>
#include <array>
#include <limits>

#include "backend/cuda/activations.h"
#include "backend/cuda/device.h"
#include "backend/cuda/products/batch.h"
#include "backend/cuda/products/timing.h"
#include "backend/cuda/tensor_map.h"
#include "ops/step_block.h"

namespace headwater::backend::cuda {

#ifndef HEADWATER_CUDA_HOPPER
cudaError_t launch_batch(Coding, const BatchCall&, cudaStream_t) {
  return cudaErrorNotSupported;
}
cudaError_t launch_gated_batch(const BatchCall&, cudaStream_t) {
  return cudaErrorNotSupported;
}
#endif

namespace {

#ifdef HEADWATER_CUDA_HOPPER
constexpr bool kIsBatchBuilt = true;
#else
constexpr bool kIsBatchBuilt = false;
#endif

constexpr std::array kWays = {Way::kFew, Way::kBatch, Way::kDense};

const CudaWeight& weight_of(const ops::Product& product) {
  return static_cast<const CudaWeight&>(*product.weight);
}

// Whether b's outputs and weights lie right behind a's, so that both are one product.
bool is_continued(const ops::Product& a, const ops::Product& b) {
  const CudaWeight &first = weight_of(a), &second = weight_of(b);
  const uint64_t bytes = first.rows() * first.columns_padded * (first.is_short ? 2 : 4);
  return first.is_short && second.is_short && first.columns_padded == second.columns_padded &&
         static_cast<const std::byte*>(first.dense) + bytes == second.dense && a.out.stride == b.out.stride &&
         a.out.dtype == b.out.dtype &&
         reinterpret_cast<std::byte*>(a.out.data) + row_bytes(a.out.dtype, a.out.columns) ==
             reinterpret_cast<std::byte*>(b.out.data);
}

bool reads_alike(const CudaWeight& a, const CudaWeight& b) {
  return a.is_short == b.is_short && a.columns_padded == b.columns_padded;
}

// As the product of a batch copies x and dense weights.
Result<CUtensorMap> map_of(const void* data, uint64_t rows, uint64_t columns, uint64_t stride, uint32_t rows_of_box) {
  const cuuint64_t sizes[] = {columns, rows}, strides[] = {stride * sizeof(uint16_t)};
  const cuuint32_t box[] = {kPairColumns, rows_of_box};
  return create_tensor_map({CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, data, sizes, strides, box});
}

}  // namespace

FewWeight few_weight(const CudaWeight& weight, const float* bias) {
  return {weight.coding <= Coding::kDense ? weight.dense : weight.packed, bias};
}

Result<Products> Products::create(bool is_invariant) {
  HEADWATER_ASSIGN_OR_RETURN(DenseProducts dense, DenseProducts::create(is_invariant));
  HEADWATER_ASSIGN_OR_RETURN(const DeviceTraits traits, device_traits());
  const bool has_few = device_attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin) >= kFewSharedBytes;
  return Products(std::move(dense), is_invariant, has_few, kIsBatchBuilt && traits.is_hopper);
}

Result<std::unique_ptr<ops::Weight>> Products::prepare(const ops::WeightView& view, const Stream& stream) {
  HEADWATER_ASSIGN_OR_RETURN(std::unique_ptr<CudaWeight> weight, prepare_weight(view, memory_, stream));
  (weight->is_short ? has_short_ : has_f32_) = true;
  columns_max_ = std::max(columns_max_, weight->columns_padded);
  if (!weight->is_short) rows_max_f32_ = std::max(rows_max_f32_, static_cast<uint32_t>(weight->rows()));
  HEADWATER_RETURN_IF_ERROR(grow());
  return std::unique_ptr<ops::Weight>(std::move(weight));
}

Status Products::reserve(uint32_t tokens) {
  tokens_max_ = std::max(tokens_max_, tokens);
  return grow();
}

Status Products::grow() {
  const uint64_t operands = uint64_t{tokens_max_} * columns_max_;
  HEADWATER_RETURN_IF_ERROR(x_.grow(operands * (has_f32_ ? sizeof(float) : sizeof(uint16_t))));
  return out_.grow(has_short_ && has_f32_ ? uint64_t{tokens_max_} * rows_max_f32_ * sizeof(float) : 0);
}

Result<ops::Matrix> Products::operand(const ops::Matrix& x, uint32_t columns_padded, bool is_short,
                                      cudaStream_t stream) {
  const DType wanted = is_short ? DType::kBF16 : DType::kF32;
  if (x.dtype == wanted && x.columns == columns_padded && x.stride % 8 == 0 &&
      reinterpret_cast<uintptr_t>(x.data) % 16 == 0) {
    return x;
  }
  const ops::Matrix converted{x_.as<float>(), x.rows, columns_padded, columns_padded, wanted};
  check(x_.size() >= x.rows * row_bytes(wanted, columns_padded), "a product beyond what was reserved");
  HEADWATER_RETURN_IF_ERROR(
      checked(launch_convert(rows_of(x), x.columns, rows_of(converted), extent_of(converted), stream),
              "converting a product's operand"));
  return converted;
}

Status Products::run(const ops::MatmulParams& params, cudaStream_t stream) {
  if (params.x.rows == 0) return {};
  for (size_t begin = 0, end; begin < params.products.size(); begin = end) {
    const CudaWeight& weight = weight_of(params.products[begin]);
    check(weight.columns() == params.x.columns, "a product's width is its weight's");
    end = begin + 1;
    while (end < params.products.size() && reads_alike(weight, weight_of(params.products[end]))) ++end;
    const std::span<const ops::Product> alike = params.products.subspan(begin, end - begin);
    HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix x, operand(params.x, weight.columns_padded, weight.is_short, stream));
    HEADWATER_ASSIGN_OR_RETURN(const Way way, way_of(x, alike, stream));
    HEADWATER_RETURN_IF_ERROR(run(way, x, alike, stream));
  }
  return {};
}

Result<bool> Products::run_gated(const ops::GatedMatmulParams& params, cudaStream_t stream) {
  const CudaWeight &gate = weight_of(params.gate), &up = weight_of(params.up);
  const ops::Matrix& out = params.out;
  const auto rows = static_cast<uint32_t>(gate.rows());
  const uint32_t groups = (rows + kGatedGroupRows - 1) / kGatedGroupRows;
  if (params.x.rows == 0 || gate.coding != Coding::kDense || up.coding != Coding::kDense || up.rows() != gate.rows() ||
      up.columns() != gate.columns() || out.dtype != DType::kBF16 || out.columns != rows || out.stride % 2 != 0 ||
      reinterpret_cast<uintptr_t>(out.data) % 4 != 0 || groups < device_attribute(cudaDevAttrMultiProcessorCount)) {
    return false;
  }
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix x, operand(params.x, gate.columns_padded, true, stream));
  const ops::Product products[] = {params.gate, params.up};
  HEADWATER_ASSIGN_OR_RETURN(const Way way, way_of(x, products, stream));
  if (way != Way::kBatch) return false;
  BatchCall batch{};
  batch.activation = params.activation;
  batch.product.x = rows_of(x);
  batch.product.tokens = x.rows;
  batch.product.pairs = gate.pairs();
  batch.product.parts_count = 1;
  for (uint32_t i = 0; i < 2; ++i) {
    const FewWeight weight = few_weight(weight_of(products[i]), products[i].bias);
    batch.product.parts[i] = {weight, rows_of(out), rows, groups * kGroupTiles};
    HEADWATER_ASSIGN_OR_RETURN(batch.weights[i], map_of(weight.data, rows, x.columns, x.columns, kGatedGroupRows));
  }
  HEADWATER_ASSIGN_OR_RETURN(batch.x, map_of(x.data, x.rows, x.columns, x.stride, batch_rows(x.rows)));
  HEADWATER_RETURN_IF_ERROR(checked(launch_gated_batch(batch, stream), "launch of a gated product"));
  return true;
}

bool Products::can_go(Way way, const ops::Matrix& x, bool is_short) const {
  if (way == Way::kDense) return true;
  if (is_invariant_ || !is_short) return false;
  return way == Way::kFew ? has_few_ && x.rows <= kFewTokens : has_batch_ && x.rows <= kBatchTokens;
}

Result<Way> Products::way_of(const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream) {
  uint64_t rows = 0;
  for (const ops::Product& product : products) rows += product.weight->rows();
  const CudaWeight& weight = weight_of(products[0]);
  if (kept_to_ && can_go(*kept_to_, x, weight.is_short)) return *kept_to_;
  const auto can = [&](Way way) { return can_go(way, x, weight.is_short); };
  const Way first = *std::ranges::find_if(kWays, can);
  if (x.rows == 1 || first == Way::kDense) return first;
  // Sizes that steps are recorded with among themselves: for others cuBLASLt has not chosen its own way by time (dense.h).
  const uint32_t bucket = ops::recorded_rows(x.rows);
  const Size size{rows, weight.columns_padded, weight.coding, bucket, x.rows == bucket};
  if (const auto known = ways_.find(size); known != ways_.end()) return known->second;
  if (is_recording(stream)) return first;
  HEADWATER_RETURN_IF_ERROR(run_dense(x, products, stream));  // which chooses its own way first
  // Between two short kernels, as in a step: what begins before the one ahead has ended, and lets the one behind begin, is worth
  // it. What other products gain by that is not seen, so cuBLASLt's has to be faster by more than kTie.
  constexpr float kTie = 0.95f;
  const DeviceBuffer& scratch = dense_.workspace();
  const ops::Matrix copy{scratch.as<float>(), x.rows, x.columns, x.columns, x.dtype};
  if (x.rows * row_bytes(x.dtype, x.columns) > scratch.size()) return Way::kDense;
  ways_[size] = Way::kDense;
  float shortest = std::numeric_limits<float>::infinity();
  for (const Way way : kWays) {
    if (!can(way)) continue;
    const auto enqueue_short = [&] {
      return checked(launch_convert(rows_of(x), x.columns, rows_of(copy), extent_of(copy), stream), "timing a product");
    };
    const auto enqueue = [&] {
      HEADWATER_RETURN_IF_ERROR(enqueue_short());
      HEADWATER_RETURN_IF_ERROR(run(way, x, products, stream));
      return enqueue_short();
    };
    const Result<float> ms = shortest_ms(enqueue, scratch, stream);
    if (!ms || *ms >= (way == Way::kDense ? kTie : 1) * shortest) continue;  // what a device or driver refuses is none
    shortest = *ms;
    ways_[size] = way;
  }
  return ways_[size];
}

Status Products::run(Way way, const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream) {
  return way == Way::kDense ? run_dense(x, products, stream) : run_packed(way, x, products, stream);
}

Status Products::run_packed(Way way, const ops::Matrix& x, std::span<const ops::Product> products,
                            cudaStream_t stream) {
  for (size_t begin = 0; begin < products.size();) {
    const Coding coding = weight_of(products[begin]).coding;
    FewCall call{};
    call.x = rows_of(x);
    call.tokens = x.rows;
    call.pairs = weight_of(products[begin]).pairs();
    uint32_t tiles = 0;
    for (; begin < products.size() && call.parts_count < kFewProducts && weight_of(products[begin]).coding == coding;
         ++begin) {
      const ops::Product& product = products[begin];
      const CudaWeight& weight = weight_of(product);
      const auto rows = static_cast<uint32_t>(weight.rows());
      tiles += static_cast<uint32_t>(way == Way::kFew ? tiles_of(rows) : groups_of(rows) * kGroupTiles);
      call.parts[call.parts_count++] = {few_weight(weight, product.bias), rows_of(product.out), rows, tiles};
    }
    if (way == Way::kFew) {
      HEADWATER_RETURN_IF_ERROR(checked(launch_few(coding, call, stream), "launch of a product of few rows"));
      continue;
    }
    BatchCall batch{};
    batch.product = call;
    HEADWATER_ASSIGN_OR_RETURN(batch.x, map_of(x.data, x.rows, x.columns, x.stride, batch_rows(x.rows)));
    for (uint32_t i = 0; i < call.parts_count && coding == Coding::kDense; ++i) {
      const FewCall::Part& part = call.parts[i];
      HEADWATER_ASSIGN_OR_RETURN(batch.weights[i],
                                 map_of(part.weight.data, part.rows, x.columns, x.columns, kGroupTiles * kTileRows));
    }
    HEADWATER_RETURN_IF_ERROR(checked(launch_batch(coding, batch, stream), "launch of a product of a batch"));
  }
  return {};
}

Status Products::run_dense(const ops::Matrix& x, std::span<const ops::Product> products, cudaStream_t stream) {
  for (size_t begin = 0, end; begin < products.size(); begin = end) {
    const CudaWeight& weight = weight_of(products[begin]);
    uint64_t rows = weight.rows();
    for (end = begin + 1; end < products.size() && is_continued(products[end - 1], products[end]); ++end) {
      rows += products[end].weight->rows();
    }
    ops::Matrix out = products[begin].out;
    out.columns = static_cast<uint32_t>(rows);
    const bool shortens = !weight.is_short && out.dtype != DType::kF32;
    const ops::Matrix to = shortens ? ops::Matrix{out_.as<float>(), x.rows, out.columns, out.columns} : out;
    check(!shortens || uint64_t{x.rows} * out.columns * sizeof(float) <= out_.size(), "room for outputs of F32");
    HEADWATER_RETURN_IF_ERROR(dense_.run({.weight = weight.dense,
                                          .n = out.columns,
                                          .k = weight.columns_padded,
                                          .x = x.data,
                                          .x_stride = x.stride,
                                          .is_short = weight.is_short,
                                          .out = rows_of(to),
                                          .tokens = x.rows},
                                         stream));
    if (shortens)
      HEADWATER_RETURN_IF_ERROR(checked(launch_convert(rows_of(to), to.columns, rows_of(out), extent_of(to), stream),
                                        "shortening a product"));
    for (size_t i = begin; i < end; ++i) {
      if (products[i].bias == nullptr) continue;
      HEADWATER_RETURN_IF_ERROR(
          checked(launch_add_bias(rows_of(products[i].out), products[i].bias, extent_of(products[i].out), stream),
                  "adding a bias"));
    }
  }
  return {};
}

}  // namespace headwater::backend::cuda
