// The loading warpgroup of the Hopper kernel: for each stream one warp for jobs, keys and values, and one for queries.
//
// What came with the step (items, page ids) and keys of earlier steps depend on no kernel ahead in the stream: they are read before
// those have ended (overlap.cuh).
#pragma once

#include "backend/cuda/attention/hopper_shared.cuh"
#include "backend/cuda/attention/rows.cuh"
#include "backend/cuda/attention/state.cuh"
#include "backend/cuda/overlap.cuh"

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
    const uint32_t chunk = min(first + lane_, chunks_ - 1);
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
    // Read along with the header: a small step's first job, if that is what it turns out to be.
    uint32_t held = min((stream_ * gridDim.x + blockIdx.x) / call_.kv_heads, call_.items_max - 1);
    attention::WorkItem item = call_.items[held];
    keys_new_ = call_.header->keys_new;
    const uint32_t items_large = call_.header->items_large, items_small = call_.header->items - items_large;
    const uint32_t items_together = call_.header->reads_again != 0 ? kItemsTogether : 1;
    shared_.clocks.stamp_loaded(
        Event::kItemKnown, item.token_begin + item.key_begin + item.flags + keys_new_ + items_small + items_together);
    const uint32_t large = items_large * call_.kv_heads, small = items_small * call_.kv_heads;
    const uint32_t busy = min(large, gridDim.x), first = (gridDim.x - busy) * kStreams;
    uint32_t job_large = blockIdx.x;
    // The first ones go to a stream of each block before any block has two.
    bool is_known = blockIdx.x >= busy;
    uint32_t job = is_known ? stream_ * (gridDim.x - busy) + blockIdx.x - busy : 0;
    while (job_large < large || job < small) {
      const bool is_shared = job_large < large;
      JobPlace at = is_shared ? place_of_job(job_large, items_large, call_.kv_heads, 1)
                              : place_of_job(job, items_small, call_.kv_heads, items_together);
      if (!is_shared) at.item += items_large;
      if (held != at.item) item = call_.items[held = at.item];
      if (is_shared) job_large += gridDim.x;
      // The next one of the queue is taken beside the loads. Those of a large job go ahead of other kernels' ends first; those of a
      // small one do where the queue is empty: to take late what all take at the same time costs more.
      const bool takes = !is_shared || !is_known;
      is_known = true;
      if (!is_shared && small > first) wait_ahead();
      const bool goes_ahead = !has_waited_;
      uint32_t next = job;
      if (takes && !goes_ahead) next = take(first, small);
      for (uint32_t slab = is_shared ? stream_ : 0; slab * call_.tokens_slab < item.token_count; ++slab) {
        pass_on(item, at.kv_head, slab, is_shared);
        load(item, at.kv_head, is_shared);
        shared_.clocks.stamp(Event::kJobCopied);
        if (is_shared) break;
      }
      wait_ahead();
      if (takes && goes_ahead) next = take(first, small);
      job = __shfl_sync(~0u, next, 0);
    }
    shared_.clocks.stamp(Event::kQueueEmpty);
    pass_on({}, 0, 0, false);
    wait_ahead();
    if (small > first && lane_ == 0 && atomicAdd(&call_.queue[1], 1) == kStreams * gridDim.x - 1) {
      call_.queue[0] = 0;
      call_.queue[1] = 0;
    }
  }

 private:
  static constexpr uint32_t kItemsTogether = 32;

  __device__ void wait_ahead() {
    if (!has_waited_) {
      wait_for_kernels_ahead();
      shared_.clocks.stamp(Event::kAheadEnded);
    }
    has_waited_ = true;
  }

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

  // Every tile, or those of this stream's parity.
  __device__ void load(const attention::WorkItem& item, uint32_t kv_head, bool is_shared) {
    PageIds page_ids(call_, item, lane_);
    const uint32_t key_end = item.key_begin + item.key_count;
    uint32_t keys = 0;
    for (uint32_t key = item.key_begin, t = 0; key < key_end; ++t) {
      const Tile tile = tile_at<kPolicy.tile_keys, kInvariant>(key, key_end, call_.cut);
      key = tile.end;
      if (is_shared && t % kStreams != stream_) continue;
      if (tile.end + keys_new_ > key_end) wait_ahead();
      load_tile(tile, kv_head, page_ids.of((tile.begin - item.key_begin) / call_.chunk));
      if (uses_ == 2) shared_.clocks.stamp(Event::kFirstCopied);
      keys += tile.end - tile.begin;
    }
    if (call_.kv_bytes_read != nullptr && lane_ == 0) atomicAdd(call_.kv_bytes_read, 4ull * keys * call_.head_dim);
  }

  // Keys, then values, a chunk at a time: a box of 64 columns for each panel. Columns beyond the head's are filled with zeros.
  __device__ __forceinline__ void load_tile(Tile tile, uint32_t kv_head, PageId page_of_lane) {
    constexpr uint32_t kPanelBytes = kPolicy.tile_keys * 128, kChunksMax = kPolicy.tile_keys / 16;
    const uint32_t chunks = (tile.end - tile.begin + call_.chunk - 1) / call_.chunk;
    auto& ring = shared_.stream[stream_].ring;
#pragma unroll 1
    for (uint32_t half = 0; half < 2; ++half) {
      const CUtensorMap* const map = half == 0 ? &call_.k_map : &call_.v_map;
      const Use<kPolicy.slots> use(uses_++);
      ring.wait_empty(use);
      uint64_t* full = &ring.full[use.place];
      const bool is_elected = ptx::is_elected();
      if (is_elected) ptx::arrive_expecting(full, chunks * call_.chunk * 128 * kPolicy.panels);
      unsigned char* to = shared_.slots[stream_][use.place];
      uint32_t slot = tile.begin % call_.page_size;
#pragma unroll
      for (uint32_t c = 0; c < kChunksMax; ++c) {
        if (c >= chunks) break;
        const uint32_t page = __shfl_sync(~0u, page_of_lane, c);
        if (is_elected) {
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
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t stream_, lane_;
  uint32_t keys_new_ = 0;
  bool has_waited_ = false;
  uint32_t uses_ = 0;  // of this stream's slots
  uint32_t jobs_ = 0;  // passed on
};

// Queries of a slab: row = token * group + head, in swizzled panels of 64 columns. Used by the query warp, and by all warps of
// an attending warpgroup for jobs of many rows, whose queries one warp would take too long to fetch.
template <typename Element, AttendPolicy kPolicy>
class QueryRows {
 public:
  // The rows of a job, to the slab's half `first`; by `warps` warps, which deal out pieces of 16 bytes.
  static __device__ __forceinline__ void copy(const AttendCall& call, HopperShared<kPolicy>& shared, uint32_t stream,
                                              const Job& job, uint32_t first, uint32_t warp, uint32_t warps) {
    const uint32_t pieces = job.tokens * call.group * kPieces;
    if (call.q_is_wide) {
      for (uint32_t piece = warp * kWarp; piece < pieces; piece += kTogether * warps * kWarp) {
        float4 values[kTogether][2];
#pragma unroll
        for (uint32_t i = 0; i < kTogether; ++i) {
          const uint32_t mine = min(piece + i * warps * kWarp + threadIdx.x % kWarp, pieces - 1);
          const uint64_t at = from(call, shared, stream, job, first, mine);
          const float4* const fours = reinterpret_cast<const float4*>(static_cast<const float*>(call.q) + at);
          values[i][0] = __ldg(fours), values[i][1] = __ldg(fours + 1);
        }
#pragma unroll
        for (uint32_t i = 0; i < kTogether; ++i) {
          const uint32_t mine = piece + i * warps * kWarp + threadIdx.x % kWarp;
          if (mine >= pieces) continue;
          const float4 a = values[i][0], b = values[i][1];
          const bool is_in = mine % kPieces * 8 < call.head_dim;
          *reinterpret_cast<uint4*>(shared.slabs[stream] + to(first, mine)) =
              is_in ? make_uint4(pack<Element>(a.x, a.y), pack<Element>(a.z, a.w), pack<Element>(b.x, b.y),
                                 pack<Element>(b.z, b.w))
                    : make_uint4(0, 0, 0, 0);
        }
      }
    } else {
#pragma unroll 4
      for (uint32_t mine = warp * kWarp + threadIdx.x % kWarp; mine < pieces; mine += warps * kWarp) {
        const uint64_t at = from(call, shared, stream, job, first, mine);
        ptx::copy_piece(shared.slabs[stream] + to(first, mine), static_cast<const Element*>(call.q) + at,
                        mine % kPieces * 8 < call.head_dim);
      }
      ptx::wait_pieces();
    }
    ptx::fence_async_shared();
  }
  // More rows than this: the attending warpgroup copies them.
  static constexpr uint32_t kRowsOfQueryWarp = 16;

 private:
  static constexpr uint32_t kPieces = kPolicy.head_dim / 8;  // of a row, zeros beyond the head's columns
  static constexpr uint32_t kTogether = 4;

  // Element of AttendCall::q where a piece begins. One beyond the head's columns reads the last one instead: a load under a
  // condition would make the next one wait.
  static __device__ __forceinline__ uint64_t from(const AttendCall& call, const HopperShared<kPolicy>& shared,
                                                  uint32_t stream, const Job& job, uint32_t first, uint32_t piece) {
    const uint32_t row = piece / kPieces, token = call.token_of_row(row);
    return shared.stream[stream].tokens[first * kHalfSlabRows + token].token * call.q_stride +
           uint64_t{job.kv_head * call.group + row - token * call.group} * call.head_dim +
           min(piece % kPieces * 8, call.head_dim - 8);
  }
  static __device__ uint32_t to(uint32_t first, uint32_t piece) {
    return swizzled<kSlabRows>(first * kHalfSlabRows + piece / kPieces, piece % kPieces);
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
    wait_for_kernels_ahead();
    shared_.clocks.stamp(Event::kAheadEnded);
    uint32_t uses = 0;
    for (uint32_t n = 0;; ++n) {
      const Job& job = stream_.wait_job(n);
      if (job.tokens == kNoTokens) break;
      const QueryPlace place(uses, job.tokens * call_.group);
      for (; uses < place.first; ++uses) skip(uses);
      fill(job, place);
      shared_.clocks.stamp(Event::kQueriesFilled);
      stream_.give_job_back(n, lane_);
      uses = place.end();
    }
    write_blind();
    shared_.clocks.tick();
  }

 private:
  // Tokens without any key are in no job.
  __device__ void write_blind() const {
    const uint32_t tokens = call_.header->tokens, stride = gridDim.x * kStreams;
    for (uint32_t first = blockIdx.x * kStreams + stream_index_; first < tokens; first += stride * kWarp) {
      const uint32_t at = first + lane_ * stride;
      for (uint32_t left = __ballot_sync(~0u, at < tokens && call_.token_empty[at] != 0); left != 0; left &= left - 1) {
        const uint32_t token = call_.token_order[first + (__ffs(static_cast<int>(left)) - 1) * stride];
        SpreadRow<Element, kPolicy.head_dim, kWarp> row;
        row.clear();
        for (uint32_t head = 0; head < call_.q_heads; ++head) {
          row.lse2 = sink_lse2(call_, head);
          row.write_out(call_, token, head, lane_);
        }
      }
    }
  }

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
      const uint32_t at = job.token_begin + j;
      const bool is_blind = call_.token_empty[at] != 0;
      const uint32_t position = call_.token_position[at];
      stream_.tokens[first * kHalfSlabRows + j] = {call_.token_order[at], is_blind ? ~0u : position};
      if ((job.flags & attention::kDirect) == 0) ptx::prefetch_l2(arrived_of(call_, job, j, 0));  // will be added to
    }
    __syncwarp();
    if (job.tokens * call_.group <= Rows::kRowsOfQueryWarp) {
      Rows::copy(call_, shared_, stream_index_, job, first, 0, 1);
    }
    for (uint32_t h = 0; h < place.halves; ++h) ptx::arrive(&stream_.queries.full[Use<2>(place.first + h).place]);
  }

  const AttendCall& call_;
  Shared& shared_;
  HopperStream<kPolicy>& stream_;
  uint32_t stream_index_, lane_;
};

}  // namespace headwater::backend::cuda
