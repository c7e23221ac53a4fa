#define HEADWATER_TARGET_NAMESPACE avx512_amx
#include "backend/cpu/peaks-inl.h"
#include "backend/cpu/tile_dots-inl.h"

namespace headwater::backend::cpu {

namespace avx512_amx {
namespace {

// Four products of 16 rows x 16 features x 64 columns, as deep as a tile: what byte_tiles-inl.h reaches half of, whose
// blocks end after 32 columns.
constexpr uint32_t kByteTilesMultiplyAdds = 4 * 16 * 16 * 64;
void repeat_byte_tiles(const PeakBuffers& buffers, uint32_t repeats) {
  const TileDots<Bf16Elements>::Session session(16);
  _tile_loadd(4, buffers.keys, 64);
  _tile_loadd(5, buffers.keys, 64);
  for (uint32_t i = 0; i < repeats; ++i) {
    _tile_dpbssd(0, 4, 5);
    _tile_dpbssd(1, 4, 5);
    _tile_dpbssd(2, 4, 5);
    _tile_dpbssd(3, 4, 5);
  }
  _tile_stored(0, buffers.scores, 64);
}

}  // namespace
}  // namespace avx512_amx

const PeakKernels kPeaksAvx512Amx = {avx512_amx::TileDots<avx512_amx::Bf16Elements>::kRows,
                                     avx512_amx::repeat_dots<avx512_amx::TileDots>,
                                     avx512_amx::repeat_weights,
                                     avx512_amx::kByteTilesMultiplyAdds,
                                     avx512_amx::repeat_byte_tiles,
                                     avx512_amx::read_all};

}  // namespace headwater::backend::cpu
