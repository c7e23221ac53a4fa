// Draws a token. All groups of a row are weighed where the draw is from all tokens or top_p is the only filter; the last
// block of threads to be done with it, or else the only one, filters and draws.
#include "backend/cuda/sampling/live.cuh"
#include "backend/cuda/sampling/weigh.cuh"

namespace headwater::backend::cuda::sampling {
namespace {

__device__ uint32_t draw_filtered(const Row& row, const Scale& scale, CutMemory& memory) {
  const RowCall& params = row.params;
  uint32_t low = kKeyOfLowest;
  uint64_t needed = 0;
  if (params.has_min_p) low = least_key(scale, params.min_p_floor);
  if (params.top_k > 0) low = key_reached_by(params.top_k, row, memory, low);
  if (params.needs_all_weights()) {
    const uint64_t total = sum_of_row(row);
    needed = share_of(params.top_p, total);
    low = key_below_top_p(scale, total - needed, row.call.vocabulary);
  }

  const LiveTokens live(row, memory, low);
  const auto weight = [&](float logit) { return weight_of(scale.relative(logit)); };
  Kept kept{low, row.call.vocabulary};
  const auto kept_weight = [&](uint32_t token, float logit) {
    return kept.holds(key_of(logit), token) ? weight(logit) : 0;
  };
  if (params.top_k > 0) kept = live.keep(low, params.top_k, [](float) { return uint64_t{1}; });
  if (params.top_p < 1) {
    if (!params.needs_all_weights()) needed = share_of(params.top_p, live.sum_up(kept_weight));
    kept = live.keep(kept.key, needed, weight);
  }
  return reach_token(row, high_product(live.sum_up(kept_weight), params.draw), kept_weight);
}

__device__ uint32_t draw_from_all(const Row& row, const Scale& scale) {
  return reach_token(row, high_product(sum_of_row(row), row.params.draw),
                     [&](uint32_t, float logit) { return weight_of(scale.relative(logit)); });
}

__global__ void __launch_bounds__(kThreads, 2) draw(const __grid_constant__ SampleCall call) {
  __shared__ CutMemory memory;
  const Row row(call, blockIdx.y);
  if (!row.params.draws() || row.is_done()) return;
  const Scale scale{row.peak(), row.params.temperature};
  if (row.params.needs_all_weights()) {
    weigh_group(row, scale);
    if (!is_last_of_row(row)) return;
  } else if (blockIdx.x > 0) {
    return;
  }
  const uint32_t token = row.params.filters() ? draw_filtered(row, scale, memory) : draw_from_all(row, scale);
  take_back(row);
  if (threadIdx.x == 0) choose(row, token);
}

}  // namespace

cudaError_t launch_draw(const SampleCall& call, cudaStream_t stream) {
  draw<<<dim3(call.groups, call.rows), kThreads, 0, stream>>>(call);
  return cudaGetLastError();
}

}  // namespace headwater::backend::cuda::sampling
