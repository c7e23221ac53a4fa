// The loading warpgroup of the Hopper kernel: for each stream one warp for jobs, keys and values, and one for queries.
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/state.cuh"
#include "backend/cuda/attention/wgmma.cuh"

namespace headwater::backend::cuda {

// The page ids of an item's chunks, 64 ahead: lane l holds those of chunks base + l and base + 32 + l, so that their loads
// are done when the ring has room.
class PageIds {
 public:
  __device__ PageIds(const AttendCall& call, const attention::WorkItem& item, uint32_t lane)
      : call_(call), item_(item), lane_(lane), chunks_((item.key_count + call.chunk - 1) / call.chunk) {
    held_ = load(0);
    ahead_ = load(kWarp);
  }
  // In lane l: of chunk first + l, counted from the item's first key; `first` never decreases.
  __device__ PageId of(uint32_t first) {
    while (first >= base_ + kWarp) {
      held_ = ahead_;
      base_ += kWarp;
      ahead_ = load(base_ + kWarp);
    }
    const uint32_t at = first + lane_ - base_;
    const PageId held = __shfl_sync(~0u, held_, at % kWarp), ahead = __shfl_sync(~0u, ahead_, at % kWarp);
    return at < kWarp ? held : ahead;
  }

 private:
  __device__ PageId load(uint32_t first) const {
    const uint32_t chunk = first + lane_;
    if (chunk >= chunks_) return 0;
    const uint32_t key = item_.key_begin % call_.page_size + chunk * call_.chunk;
    return call_.page_ids[item_.page_begin + key / call_.page_size];
  }

  const AttendCall& call_;
  const attention::WorkItem& item_;
  uint32_t lane_;
  uint32_t chunks_;
  uint32_t base_ = 0;
  PageId held_, ahead_;
};

template <AttendPolicy kPolicy, bool kInvariant>
class Loader {
 public:
  using Shared = HopperShared<kPolicy>;

  __device__ Loader(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t lane)
      : call_(call), shared_(shared), stream_(stream), lane_(lane) {}

  // Jobs of both streams first, dealt out evenly; then this stream's own, each taken when the one before is on its way.
  __device__ void run() {
    const uint32_t items_large = call_.header->items_large, items = call_.header->items;
    const uint32_t large = items_large * call_.kv_heads, small = (items - items_large) * call_.kv_heads;
    for (uint32_t job = blockIdx.x; job < large; job += gridDim.x) {
      const attention::WorkItem item = call_.items[job / call_.kv_heads];
      pass_on(item, job % call_.kv_heads, stream_, true);
      load(item, job % call_.kv_heads, kStreams);
    }
    const uint32_t busy = min(large, gridDim.x), first = (gridDim.x - busy) * kStreams;
    uint32_t job = (blockIdx.x - busy) * kStreams + stream_;
    if (blockIdx.x < busy) job = __shfl_sync(~0u, take(first, small), 0);
    while (job < small) {
      const attention::WorkItem item = call_.items[items_large + job / call_.kv_heads];
      const uint32_t next = take(first, small);
      for (uint32_t slab = 0; slab * call_.tokens_slab < item.token_count; ++slab) {
        pass_on(item, job % call_.kv_heads, slab, false);
        load(item, job % call_.kv_heads, 1);
      }
      job = __shfl_sync(~0u, next, 0);
    }
    pass_on({}, 0, 0, false);
    if (small > first && lane_ == 0 && atomicAdd(&call_.queue[1], 1) == kStreams * gridDim.x - 1) {
      call_.queue[0] = 0;
      call_.queue[1] = 0;
    }
  }

 private:
  // In lane 0. The first jobs are not taken from the queue.
  __device__ uint32_t take(uint32_t first, uint32_t small) const {
    if (small <= first) return small;
    return lane_ == 0 ? atomicAdd(&call_.queue[0], 1) + first : 0;
  }

  __device__ void pass_on(const attention::WorkItem& item, uint32_t kv_head, uint32_t slab, bool is_shared) {
    HopperStream<kPolicy>& stream = shared_.stream[stream_];
    const Use<kJobs> use(jobs_++);
    if (lane_ != 0) return;
    const uint32_t first = slab * call_.tokens_slab;
    stream.jobs.wait_empty(use);
    stream.job[use.place] = {item.token_begin + first,
                             first < item.token_count ? min(call_.tokens_slab, item.token_count - first) : kNoTokens,
                             item.key_begin,
                             item.key_count,
                             item.partial_begin + first,
                             item.token_count,
                             item.flags,
                             kv_head,
                             is_shared};
    ptx::arrive(&stream.jobs.full[use.place]);
  }

  // Every tile, or (step 2) those of this stream's parity.
  __device__ void load(const attention::WorkItem& item, uint32_t kv_head, uint32_t step) {
    PageIds page_ids(call_, item, lane_);
    const uint32_t key_end = item.key_begin + item.key_count;
    uint32_t keys = 0;
    for (uint32_t key = item.key_begin, t = 0; key < key_end; ++t) {
      const Tile tile = tile_at<kPolicy.tile_keys, kInvariant>(key, key_end, call_.cut);
      key = tile.end;
      if (step > 1 && t % step != stream_) continue;
      const PageId page = page_ids.of((tile.begin - item.key_begin) / call_.chunk);
      load_half(&call_.k_map, tile, kv_head, page);
      load_half(&call_.v_map, tile, kv_head, page);
      keys += tile.end - tile.begin;
    }
    if (call_.kv_bytes_read != nullptr && lane_ == 0) atomicAdd(call_.kv_bytes_read, 4ull * keys * call_.head_dim);
  }

  // A chunk at a time: a box of 64 columns for each panel. Columns beyond the head's are filled with zeros.
  __device__ __forceinline__ void load_half(const CUtensorMap* map, Tile tile, uint32_t kv_head, PageId page_of_lane) {
    constexpr uint32_t kPanelBytes = kPolicy.tile_keys * 128, kChunksMax = kPolicy.tile_keys / 16;
    const uint32_t chunks = (tile.end - tile.begin + call_.chunk - 1) / call_.chunk;
    const Use<kPolicy.slots> use(uses_++);
    auto& ring = shared_.stream[stream_].ring;
    ring.wait_empty(use);
    uint64_t* full = &ring.full[use.place];
    if (lane_ == 0) ptx::arrive_expecting(full, chunks * call_.chunk * 128 * kPolicy.panels);
    unsigned char* to = shared_.slots[stream_][use.place];
    uint32_t slot = tile.begin % call_.page_size;
#pragma unroll
    for (uint32_t c = 0; c < kChunksMax; ++c) {
      if (c >= chunks) break;
      const uint32_t page = __shfl_sync(~0u, page_of_lane, c);
      if (lane_ == 0) {
#pragma unroll
        for (uint32_t panel = 0; panel < kPolicy.panels; ++panel) {
          ptx::copy_box(to + panel * kPanelBytes, map, {panel * 64, slot, kv_head, page, call_.layer}, full);
        }
      }
      to += call_.chunk * 128;
      slot += call_.chunk;
      if (slot == call_.page_size) slot = 0;
    }
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t stream_, lane_;
  uint32_t uses_ = 0;  // of this stream's slots
  uint32_t jobs_ = 0;  // passed on
};

// Queries of a slab: row = token * group + head, in swizzled panels of 64 columns. Used by the query warp, and by all warps of
// an attending warpgroup for jobs of many rows, whose queries one warp would take too long to fetch.
template <typename Element, AttendPolicy kPolicy>
class QueryRows {
 public:
  // Rows warp, warp + warps, ... of the slab's half `first`; kTogether of them are in flight.
  template <uint32_t kTogether>
  static __device__ __forceinline__ void copy(const AttendCall& call, HopperShared<kPolicy>& shared, uint32_t stream,
                                              const Job& job, uint32_t first, uint32_t warp, uint32_t warps) {
    if (call.is_wide) {
      copy_fours<float4, kTogether>(call, shared, stream, job, first, warp, warps);
    } else {
      copy_fours<uint2, kTogether>(call, shared, stream, job, first, warp, warps);
    }
    ptx::fence_async_shared();
  }
  // More rows than this: the attending warpgroup copies them.
  static constexpr uint32_t kRowsOfQueryWarp = 16;

 private:
  static constexpr uint32_t kColumnsLane = 4;
  static constexpr uint32_t kSpans = (kPolicy.head_dim + kWarp * kColumnsLane - 1) / (kWarp * kColumnsLane);

  // Four columns a lane: as floats or as elements. Loads beyond the last row or column read it once more instead of
  // standing under a condition, which would make each wait for the one before.
  template <typename Four, uint32_t kTogether>
  static __device__ __forceinline__ void copy_fours(const AttendCall& call, HopperShared<kPolicy>& shared,
                                                    uint32_t stream, const Job& job, uint32_t first, uint32_t warp,
                                                    uint32_t warps) {
    const uint32_t rows = job.tokens * call.group, lane = threadIdx.x % kWarp;
    for (uint32_t row = warp; row < rows; row += kTogether * warps) {
      Four values[kTogether][kSpans];
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
        const uint32_t at = min(row + i * warps, rows - 1), token = call.token_of_row(at);
        const uint64_t offset = shared.stream[stream].tokens[first][token] * call.q_stride +
                                uint64_t{job.kv_head * call.group + at - token * call.group} * call.head_dim;
#pragma unroll
        for (uint32_t span = 0; span < kSpans; ++span) {
          const uint64_t four = (offset + min(column(span, lane), call.head_dim - kColumnsLane)) / kColumnsLane;
          values[i][span] = __ldg(static_cast<const Four*>(call.q) + four);
        }
      }
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
#pragma unroll
        for (uint32_t span = 0; span < kSpans; ++span) {
          const uint32_t at = column(span, lane), to = first * kHalfSlabRows + row + i * warps;
          if (row + i * warps >= rows || at >= kPolicy.head_dim) continue;
          const uint32_t byte = to * 128 + ((at % 64 * 2) ^ (to % 8 * 16));
          *reinterpret_cast<uint2*>(shared.slabs[stream] + at / 64 * kSlabRows * 128 + byte) =
              at < call.head_dim ? packed(values[i][span]) : make_uint2(0, 0);
        }
      }
    }
  }

  static __device__ uint32_t column(uint32_t span, uint32_t lane) {
    return (span * kWarp + lane) * kColumnsLane;
  }
  static __device__ uint2 packed(float4 f) {
    return make_uint2(pack<Element>(f.x, f.y), pack<Element>(f.z, f.w));
  }
  static __device__ uint2 packed(uint2 elements) {
    return elements;
  }
};

// Ahead of the attending warpgroup: the tokens and positions of its jobs, and the queries of those of few rows.
template <typename Element, AttendPolicy kPolicy>
class QueryLoader {
 public:
  using Shared = HopperShared<kPolicy>;
  using Rows = QueryRows<Element, kPolicy>;

  __device__ QueryLoader(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t lane)
      : call_(call), shared_(shared), stream_(shared.stream[stream]), stream_index_(stream), lane_(lane) {}

  __device__ void run() {
    uint32_t uses = 0;
    for (uint32_t n = 0;; ++n) {
      const Job job = stream_.take_job(n);
      __syncwarp();
      if (lane_ == 0) stream_.job_taken(n);
      if (job.tokens == kNoTokens) return;
      const QueryPlace place(uses, job.tokens * call_.group);
      for (; uses < place.first; ++uses) skip(uses);
      fill(job, place);
      uses = place.end();
    }
  }

 private:
  // A half that is left out counts as filled and read.
  __device__ void skip(uint32_t uses) {
    const Use<2> use(uses);
    stream_.queries.wait_empty(use);
    ptx::arrive(&stream_.queries.full[use.place]);
  }

  __device__ void fill(const Job& job, const QueryPlace& place) {
    for (uint32_t h = 0; h < place.halves; ++h) stream_.queries.wait_empty(Use<2>(place.first + h));
    const uint32_t first = place.first % 2;
    for (uint32_t j = lane_; j < job.tokens; j += kWarp) {
      const bool is_blind = call_.token_empty[job.token_begin + j] != 0;
      const uint32_t token = call_.token_order[job.token_begin + j];
      const uint32_t position = call_.token_position[job.token_begin + j];
      stream_.tokens[first][j] = token;
      stream_.positions[first][j] = is_blind ? ~0u : position;
    }
    __syncwarp();
    if (job.tokens * call_.group <= Rows::kRowsOfQueryWarp) {
      Rows::template copy<4>(call_, shared_, stream_index_, job, first, 0, 1);
    }
    for (uint32_t h = 0; h < place.halves; ++h) ptx::arrive(&stream_.queries.full[Use<2>(place.first + h).place]);
  }

  const AttendCall& call_;
  Shared& shared_;
  HopperStream<kPolicy>& stream_;
  uint32_t stream_index_, lane_;
};

}  // namespace headwater::backend::cuda
