// The loading warpgroup of the Hopper kernel: one warp for jobs, keys and values; three for queries.
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/state.cuh"
#include "backend/cuda/attention/wgmma.cuh"

namespace headwater::backend::cuda {

// The page ids of a job's chunks, 64 ahead: lane l holds those of chunks base + l and base + 32 + l, so that their
// loads are done when the ring has room.
class PageIds {
 public:
  __device__ PageIds(const AttendCall& call, const attention::WorkItem& item, uint32_t lane)
      : call_(call), item_(item), lane_(lane), chunks_((item.key_count + call.chunk - 1) / call.chunk) {
    held_ = load(0);
    ahead_ = load(kWarp);
  }
  // Of chunk first + lane, counted from the item's first key; `first` never decreases.
  __device__ PageId of(uint32_t first) {
    if (first >= base_ + kWarp) {
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

  __device__ Loader(const AttendCall& call, Shared& shared, uint32_t lane)
      : call_(call), shared_(shared), lane_(lane) {}

  __device__ void run() {
    uint32_t job = blockIdx.x;
    attention::WorkItem item = call_.items[job / call_.kv_heads];
    const uint32_t jobs = call_.header->items * call_.kv_heads;
    uint32_t n = 0;
    while (job < jobs) {
      const uint32_t next = take_next(jobs);
      pass_on(item, job % call_.kv_heads, n++);
      attention::WorkItem next_item = item;
      if (next < jobs) next_item = call_.items[next / call_.kv_heads];
      load(item, job % call_.kv_heads);
      job = next;
      item = next_item;
    }
    pass_on({}, 0, n);
    if (jobs > gridDim.x && lane_ == 0 && atomicAdd(&call_.queue[1], 1) == gridDim.x - 1) {
      call_.queue[0] = 0;
      call_.queue[1] = 0;
    }
  }

 private:
  __device__ uint32_t take_next(uint32_t jobs) const {
    if (jobs <= gridDim.x) return jobs;
    uint32_t next = 0;
    if (lane_ == 0) next = atomicAdd(&call_.queue[0], 1) + gridDim.x;
    return __shfl_sync(~0u, next, 0);
  }

  __device__ void pass_on(const attention::WorkItem& item, uint32_t kv_head, uint32_t n) {
    const Use<kJobs> use(n);
    if (lane_ != 0) return;
    shared_.jobs.wait_empty(use);
    const uint32_t tokens = call_.slab_tokens;
    shared_.job[use.place] = {
        item.token_begin,   item.token_count, item.key_begin, item.key_count,
        item.partial_begin, item.flags,       kv_head,        (item.token_count + tokens - 1) / tokens};
    ptx::arrive(&shared_.jobs.full[use.place]);
  }

  __device__ void load(const attention::WorkItem& item, uint32_t kv_head) {
    PageIds page_ids(call_, item, lane_);
    const uint32_t key_end = item.key_begin + item.key_count;
    for (uint32_t key = item.key_begin; key < key_end;) {
      const Tile tile = tile_at<kPolicy.tile_keys, kInvariant>(key, key_end, call_.cut);
      const PageId page = page_ids.of((key - item.key_begin) / call_.chunk);
      load_half(&call_.k_map, tile, kv_head, page);
      load_half(&call_.v_map, tile, kv_head, page);
      key = tile.end;
    }
    if (call_.kv_bytes_read != nullptr && lane_ == 0) {
      atomicAdd(call_.kv_bytes_read, 4ull * item.key_count * call_.head_dim);
    }
  }

  // A lane copies a chunk: a box of 64 columns for each panel. Columns beyond the head's are filled with zeros.
  __device__ void load_half(const CUtensorMap* map, Tile tile, uint32_t kv_head, PageId page) {
    constexpr uint32_t kPanelBytes = kPolicy.tile_keys * 128;
    const uint32_t chunks = (tile.end - tile.begin + call_.chunk - 1) / call_.chunk;
    const Use<kPolicy.slots> use(uses_++);
    shared_.ring.wait_empty(use);
    uint64_t* full = &shared_.ring.full[use.place];
    if (lane_ == 0) ptx::arrive_expecting(full, chunks * call_.chunk * 128 * kPolicy.panels);
    __syncwarp();
    if (lane_ < chunks) {
      const uint32_t key = lane_ * call_.chunk;
      unsigned char* to = shared_.slots[use.place] + key * 128;
      const uint32_t slot = (tile.begin + key) % call_.page_size;
#pragma unroll
      for (uint32_t panel = 0; panel < kPolicy.panels; ++panel) {
        ptx::copy_box(to + panel * kPanelBytes, map, {panel * 64, slot, kv_head, page, call_.layer}, full);
      }
    }
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t lane_;
  uint32_t uses_ = 0;  // of slots
};

// Fills slabs: row = token * group + head, in swizzled panels of 64 columns.
template <typename Element, AttendPolicy kPolicy>
class QueryLoader {
 public:
  using Shared = HopperShared<kPolicy>;

  __device__ QueryLoader(const AttendCall& call, Shared& shared, uint32_t thread)
      : call_(call), shared_(shared), thread_(thread) {}

  __device__ void run() {
    uint32_t uses = 0;
    for (uint32_t n = 0;; ++n) {
      const Job job = shared_.take_job(n);
      ptx::sync_named(kBarrierQueries, kQueryThreads);
      if (thread_ == 0) shared_.job_taken(n);
      if (job.slabs == 0) return;
      const uint32_t tokens_max = call_.slab_tokens;
      for (uint32_t slab = 0; slab < job.slabs; ++slab) {
        const uint32_t first = slab * tokens_max;
        fill(job, job.token_begin + first, min(tokens_max, job.token_count - first), Use<kSlabs>(uses++));
      }
    }
  }

 private:
  static constexpr uint32_t kWarps = kQueryThreads / kWarp;
  static constexpr uint32_t kColumnsLane = 4;
  static constexpr uint32_t kSpans = (kPolicy.head_dim + kWarp * kColumnsLane - 1) / (kWarp * kColumnsLane);
  static constexpr uint32_t kTogether = 4;  // rows whose loads are in flight

  __device__ void fill(const Job& job, uint32_t token_begin, uint32_t tokens, Use<kSlabs> use) {
    shared_.queries.wait_empty(use);
    for (uint32_t j = thread_; j < tokens; j += kQueryThreads) {
      const bool is_blind = call_.token_empty[token_begin + j] != 0;
      shared_.tokens[use.place][j] = call_.token_order[token_begin + j];
      shared_.positions[use.place][j] = is_blind ? ~0u : call_.token_position[token_begin + j];
    }
    ptx::sync_named(kBarrierQueries, kQueryThreads);
    const uint32_t rows = tokens * call_.group;
    for (uint32_t row = thread_ / kWarp; row < rows; row += kWarps * kTogether) {
      uint2 values[kTogether][kSpans];
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
        if (row + i * kWarps < rows) read(job, use.place, row + i * kWarps, values[i]);
      }
#pragma unroll
      for (uint32_t i = 0; i < kTogether; ++i) {
        if (row + i * kWarps < rows) write(use.place, row + i * kWarps, values[i]);
      }
    }
    ptx::fence_async_shared();
    ptx::arrive(&shared_.queries.full[use.place]);
  }

  __device__ uint32_t column(uint32_t span) const {
    return (span * kWarp + thread_ % kWarp) * kColumnsLane;
  }

  __device__ void read(const Job& job, uint32_t place, uint32_t row, uint2 (&values)[kSpans]) const {
    const uint64_t token = shared_.tokens[place][row / call_.group];
    const uint64_t offset =
        token * call_.q_stride + uint64_t{job.kv_head * call_.group + row % call_.group} * call_.head_dim;
#pragma unroll
    for (uint32_t span = 0; span < kSpans; ++span) {
      values[span] = {0, 0};
      if (column(span) >= call_.head_dim) continue;
      if (call_.is_wide) {
        const float4 f =
            __ldg(reinterpret_cast<const float4*>(static_cast<const float*>(call_.q) + offset + column(span)));
        values[span] = {pack<Element>(f.x, f.y), pack<Element>(f.z, f.w)};
      } else {
        values[span] =
            __ldg(reinterpret_cast<const uint2*>(static_cast<const Element*>(call_.q) + offset + column(span)));
      }
    }
  }

  __device__ void write(uint32_t place, uint32_t row, const uint2 (&values)[kSpans]) {
#pragma unroll
    for (uint32_t span = 0; span < kSpans; ++span) {
      if (column(span) >= kPolicy.head_dim) continue;
      const uint32_t panel = column(span) / 64;
      const uint32_t byte = row * 128 + ((column(span) % 64 * 2) ^ (row % 8 * 16));
      *reinterpret_cast<uint2*>(shared_.slabs[place] + panel * kSlabRows * 128 + byte) = values[span];
    }
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t thread_;  // of the query warps
};

}  // namespace headwater::backend::cuda
