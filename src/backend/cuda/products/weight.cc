#include "backend/cuda/products/weight.h"

#include <algorithm>

#include "backend/cuda/products/pack.h"

namespace headwater::backend::cuda {
namespace {

constexpr uint64_t kPieceMin = uint64_t{64} << 20, kPieceMax = uint64_t{4} << 30, kAlignment = 256;
constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

Coding coding_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return Coding::kNone;
    case DType::kQ8_0:
      return Coding::kQ8;
    case DType::kQ4_0:
      return Coding::kQ4;
    case DType::kQ4_1:
      return Coding::kQ4Min;
    default:
      return Coding::kDense;
  }
}

// Uploads the rows as the file holds them and lets the device do the rest.
Status unpack_on_device(const ops::WeightView& view, const CudaWeight& weight, const Stream& stream) {
  HEADWATER_ASSIGN_OR_RETURN(const DeviceBuffer raw, DeviceBuffer::create(view.bytes()));
  HEADWATER_RETURN_IF_ERROR(
      checked(cudaMemcpyAsync(raw.data(), view.data, view.bytes(), cudaMemcpyHostToDevice, stream.get()), "upload"));
  const UnpackCall call{raw.data(),   view.dtype, view.rows, view.columns, weight.dense, weight.columns_padded,
                        weight.packed};
  HEADWATER_RETURN_IF_ERROR(checked(launch_unpack(call, stream.get()), "unpacking a weight"));
  return stream.wait();
}

// Some rows at a time, decoded on the host.
Status decode_on_host(const ops::WeightView& view, const CudaWeight& weight, const Stream& stream) {
  const uint64_t bytes_element = weight.is_short ? sizeof(uint16_t) : sizeof(float);
  const uint64_t bytes_row = weight.columns_padded * bytes_element;
  const uint64_t rows_staged = std::clamp<uint64_t>(kStagingBytes / bytes_row, 1, view.rows);
  std::vector<float> values(view.columns);
  std::vector<std::byte> staging(rows_staged * bytes_row);  // what pads the columns stays zero
  for (uint64_t begin = 0; begin < view.rows; begin += rows_staged) {
    const uint64_t count = std::min(rows_staged, view.rows - begin);
    for (uint64_t i = 0; i < count; ++i) {
      dequantize_row(view.dtype, view.data + (begin + i) * row_bytes(view.dtype, view.columns), view.columns,
                     values.data());
      std::byte* to = &staging[i * bytes_row];
      if (weight.is_short) {
        std::ranges::transform(values, reinterpret_cast<uint16_t*>(to), f32_to_bf16);
      } else {
        std::ranges::copy(values, reinterpret_cast<float*>(to));
      }
    }
    auto* to = static_cast<std::byte*>(weight.dense) + begin * bytes_row;
    HEADWATER_RETURN_IF_ERROR(checked(
        cudaMemcpyAsync(to, staging.data(), count * bytes_row, cudaMemcpyHostToDevice, stream.get()), "upload"));
    HEADWATER_RETURN_IF_ERROR(stream.wait());
  }
  return {};
}

}  // namespace

Result<std::byte*> Arena::take(uint64_t bytes) {
  bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  auto piece = std::ranges::find_if(pieces_, [&](const Piece& one) { return one.used + bytes <= one.memory.size(); });
  if (piece == pieces_.end()) {
    const uint64_t usual =
        pieces_.empty() ? kPieceMin : std::min<uint64_t>(2 * pieces_.back().memory.size(), kPieceMax);
    HEADWATER_ASSIGN_OR_RETURN(DeviceBuffer memory, DeviceBuffer::create(std::max(bytes, usual)));
    piece = pieces_.insert(pieces_.end(), Piece{std::move(memory), 0});
  }
  std::byte* begin = piece->memory.data() + piece->used;
  piece->used += bytes;
  return begin;
}

Result<std::unique_ptr<CudaWeight>> prepare_weight(const ops::WeightView& view, WeightMemory& memory,
                                                   const Stream& stream) {
  HEADWATER_RETURN_IF_ERROR(ops::check_weight_type(view.dtype));
  if (view.rows == 0 || view.columns == 0 || view.columns % block_elements(view.dtype) != 0 ||
      view.columns > UINT32_MAX / 2) {
    return error(ErrorCode::kInvalidArgument, "a weight of {} x {} {}: columns must be whole blocks of {}", view.rows,
                 view.columns, to_string(view.dtype), block_elements(view.dtype));
  }
  auto weight = std::make_unique<CudaWeight>(view.rows, view.columns, view.dtype);
  weight->is_short = view.dtype != DType::kF32;
  weight->columns_padded = static_cast<uint32_t>(pairs_of(view.columns) * kPairColumns);
  weight->coding = coding_of(view.dtype);
  const uint64_t elements = tiles_of(view.rows) * kTileRows * weight->columns_padded;
  HEADWATER_ASSIGN_OR_RETURN(std::byte * dense, memory.dense.take(elements * (weight->is_short ? 2 : 4)));
  weight->dense = dense;
  if (weight->coding > Coding::kDense) {
    const uint64_t pairs_of_tiles = groups_of(view.rows) * kGroupTiles * weight->pairs();
    HEADWATER_ASSIGN_OR_RETURN(weight->packed, memory.packed.take(pairs_of_tiles * packed_bytes(weight->coding)));
  }
  HEADWATER_RETURN_IF_ERROR(can_unpack(view.dtype) ? unpack_on_device(view, *weight, stream)
                                                   : decode_on_host(view, *weight, stream));
  return weight;
}

}  // namespace headwater::backend::cuda
