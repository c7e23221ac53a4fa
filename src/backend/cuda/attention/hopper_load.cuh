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

template <AttendPolicy kPolicy, bool kInvariant>
class Loader {
 public:
  using Shared = HopperShared<kPolicy>;

  __device__ Loader(const AttendCall& call, Shared& shared, uint32_t stream, uint32_t lane)
      : call_(call), shared_(shared), stream_(stream), lane_(lane) {}

  // Asks for the header and, along with it, for a small step's first job, if that is what it turns out to be.
  __device__ void ask() {
    take_item(min(call_.kv_heads_division.quotient(stream_ * gridDim.x + blockIdx.x), call_.items_max - 1));
    keys_new_ = ptx::load_now(&call_.header->keys_new);
    items_ = ptx::load_now(&call_.header->items);
    items_large_ = ptx::load_now(&call_.header->items_large);
    reads_again_ = ptx::load_now(&call_.header->reads_again);
  }

  // Jobs of both streams first, dealt out evenly; then this stream's own, each taken when the one before is on its way.
  __device__ void run() {
    const uint32_t items_large = items_large_, items_small = items_ - items_large;
    const uint32_t together_log2 = reads_again_ != 0 ? kItemsTogetherLog2 : 0;
    shared_.clocks.stamp_loaded(
        Event::kItemKnown, item_.token_begin + item_.key_begin + item_.flags + keys_new_ + items_small + together_log2);
    const uint32_t large = items_large * call_.kv_heads, small = items_small * call_.kv_heads;
    const uint32_t busy = min(large, gridDim.x), first = (gridDim.x - busy) * kStreams;
    uint32_t job_large = blockIdx.x;
    // The first ones go to a stream of each block before any block has two.
    uint32_t job = blockIdx.x >= busy ? stream_ * (gridDim.x - busy) + blockIdx.x - busy : 0;
#pragma unroll 1
    for (bool is_first = true; job_large < large || job < small; is_first = false) {
      const bool is_shared = job_large < large;
      JobPlace at = place_of_job(is_shared ? job_large : job, is_shared ? items_large : items_small,
                                 call_.kv_heads_division, is_shared ? 0 : together_log2);
      if (!is_shared) at.item += items_large;
      if (held_ != at.item) take_item(at.item);
      // The next one of the queue is taken beside the loads; behind a large job, once other kernels have ended. To take late what
      // all take at the same time costs more.
      uint32_t next = job;
      if (is_shared) {
        job_large += gridDim.x;
      } else {
        if (small > first) wait_ahead();
        next = take(first, small);
      }
      // A plan of ours has one slab here; others' small items may have more.
      for (uint32_t slab = is_shared ? stream_ : 0;; ++slab) {
        load(at.kv_head, slab, is_shared);
        shared_.clocks.stamp(Event::kJobCopied);
        if (is_shared || (slab + 1) * call_.tokens_slab >= item_.token_count) break;
      }
      wait_ahead();
      if (is_shared && is_first) next = take(first, small);
      job = __shfl_sync(~0u, next, 0);
    }
    shared_.clocks.stamp(Event::kQueueEmpty);
    if (lane_ == 0) {  // who says that there are no more jobs
      shared_.stream[stream_].step_tokens = call_.header->tokens;
      shared_.stream[stream_].step_partials = call_.header->partials;
    }
    pass_on({}, 0, 0, false);
    wait_ahead();
    if (small > first && lane_ == 0 && ptx::fetch_and_add(&call_.queue[1], 1) == kStreams * gridDim.x - 1) {
      call_.queue[0] = 0;
      call_.queue[1] = 0;
    }
  }

 private:
  static constexpr uint32_t kItemsTogetherLog2 = 5;
  static_assert(kPolicy.tile_keys <= ops::kFirstPages * 16, "the first tile's pages stand beside the item");

  // Where a chunk lies.
  struct Chunk {
    PageId page;
    uint32_t slot;
  };

  // And, in lane l, the page of its l-th chunk, if that is in the first tile.
  __device__ void take_item(uint32_t index) {
    constexpr uint32_t kWords = sizeof item_ / 4;
    const auto* const from = reinterpret_cast<const uint32_t*>(call_.items + index);
    auto* const to = reinterpret_cast<uint32_t*>(&item_);
#pragma unroll
    for (uint32_t i = 0; i < kWords; ++i) to[i] = ptx::load_now(from + i);
    first_page_ =
        ptx::load_now(&call_.first_pages[index * ops::kFirstPages + min(page_of(lane_), ops::kFirstPages - 1)]);
    held_ = index;
  }

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
    return lane_ == 0 ? ptx::fetch_and_add(&call_.queue[0], 1) + first : 0;
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
    ptx::arrive(stream.jobs.full(use));
  }

  // Passes a job of the held item on and loads every tile, or those of this stream's parity. Page ids are read a tile ahead.
  __device__ void load(uint32_t kv_head, uint32_t slab, bool is_shared) {
    const attention::WorkItem& item = item_;
    const uint32_t key_end = item.key_begin + item.key_count;
    const auto after = [&](uint32_t key) { return tile_at<kPolicy.tile_keys, kInvariant>(key, key_end, call_.cut); };
    Tile tile = after(item.key_begin);
    Chunk chunk{first_page_, slot_of(lane_, page_of(lane_))};
    if (is_shared && stream_ != 0) {
      tile = after(tile.end);
      chunk = chunk_of_lane(item, tile.begin);
    }
    pass_on(item, kv_head, slab, is_shared);
#ifndef NDEBUG
    uint32_t keys = 0;
#endif
#pragma unroll 1
    while (tile.begin < key_end) {
      Tile next = after(tile.end);
      if (is_shared) next = after(next.end);
      const Chunk ahead = chunk_of_lane(item, next.begin);
      if (tile.end + keys_new_ > key_end) wait_ahead();
      load_tile((tile.end - tile.begin - 1 >> call_.chunk_log2) + 1, kv_head, chunk);
      if (uses_ == 2) shared_.clocks.stamp(Event::kFirstCopied);
#ifndef NDEBUG
      keys += tile.end - tile.begin;
#endif
      tile = next;
      chunk = ahead;
    }
#ifndef NDEBUG
    if (lane_ == 0) atomicAdd(call_.kv_bytes_read, 4ull * keys * call_.head_dim);
#endif
  }

  // Of a chunk, both counted from an item's first.
  __device__ uint32_t page_of(uint32_t chunk) const {
    return call_.chunks_page.quotient(chunk);
  }

  __device__ uint32_t slot_of(uint32_t chunk, uint32_t page) const {
    return chunk - page * call_.chunks_page.divisor << call_.chunk_log2;
  }

  // In lane l: the l-th chunk from `key` on, or the item's last one.
  __device__ Chunk chunk_of_lane(const attention::WorkItem& item, uint32_t key) const {
    const uint32_t chunk =
        min((key - item.key_begin >> call_.chunk_log2) + lane_, item.key_count - 1 >> call_.chunk_log2);
    const uint32_t page = page_of(chunk);
    return {ptx::load_now(&call_.page_ids[item.page_begin + page]), slot_of(chunk, page)};
  }

  // Keys, then values, a chunk at a time: a box of 64 columns for each panel. Columns beyond the head's are filled with zeros.
  __device__ __forceinline__ void load_tile(uint32_t chunks, uint32_t kv_head, const Chunk& chunk_of_lane) {
    constexpr uint32_t kPanelBytes = kPolicy.tile_keys * 128;
    const uint32_t chunk_bytes = 128u << call_.chunk_log2;
    auto& ring = shared_.stream[stream_].ring;
#pragma unroll 1
    for (uint32_t half = 0; half < 2; ++half) {
      const CUtensorMap* const map = half == 0 ? &call_.k_map : &call_.v_map;
      const Use<kPolicy.slots> use(uses_++);
      ring.wait_empty(use);
      uint64_t* const full = ring.full(use);
      const bool is_elected = ptx::is_elected();
      if (is_elected) ptx::arrive_expecting(full, chunks * chunk_bytes * kPolicy.panels);
      unsigned char* to = shared_.slots[stream_][use.place];
#pragma unroll 1
      for (uint32_t c = 0; c < chunks; ++c, to += chunk_bytes) {
        const uint32_t page = __shfl_sync(~0u, chunk_of_lane.page, c), slot = __shfl_sync(~0u, chunk_of_lane.slot, c);
        if (!is_elected) continue;
#pragma unroll
        for (uint32_t panel = 0; panel < kPolicy.panels; ++panel) {
          ptx::copy_box(to + panel * kPanelBytes, map, {panel * 64, slot, kv_head, page, call_.layer}, full);
        }
      }
    }
  }

  const AttendCall& call_;
  Shared& shared_;
  uint32_t stream_, lane_;
  uint32_t held_;  // index of the item
  attention::WorkItem item_;
  PageId first_page_;
  uint32_t keys_new_, items_, items_large_, reads_again_;  // of the header
  bool has_waited_ = false;
  uint32_t uses_ = 0;  // of this stream's slots
  uint32_t jobs_ = 0;  // passed on
};

// Queries of a slab: row = token * group + head, in swizzled panels of 64 columns. Used by the query warp, and by all warps of
// an attending warpgroup for jobs of many rows, whose queries one warp would take too long to fetch.
template <typename Element, AttendPolicy kPolicy>
class QueryRows {
 public:
  // The rows of a job, to the slab's half `first`; by `warps` warps, which deal out pieces of 16 bytes. kTogether: of floats, how
  // many a lane has under way, each a stretch of code more.
  template <uint32_t kTogether>
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
#pragma unroll 1
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
    fetch_to_l2();
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
  // Queries and what goes with their tokens, shared by the query warps of all blocks while they wait for jobs. Later they would be
  // behind the first keys and values of all.
  __device__ void fetch_to_l2() const {
    const uint32_t tokens = call_.header->tokens;
    const uint32_t element_bytes = call_.q_is_wide ? 4 : 2, row_bytes = call_.q_heads * call_.head_dim * element_bytes;
#pragma unroll 1
    for (uint32_t t = blockIdx.x * kStreams + stream_index_; t < tokens; t += gridDim.x * kStreams) {
      const auto* const row = static_cast<const char*>(call_.q) + t * call_.q_stride * element_bytes;
#pragma unroll 1
      for (uint32_t byte = lane_ * 128; byte < row_bytes; byte += kWarp * 128) ptx::prefetch_l2(row + byte);
      const void* const with_tokens[] = {&call_.token_order[t], &call_.token_position[t], &call_.token_empty[t]};
      if (lane_ < 3) ptx::prefetch_l2(lane_ == 0 ? with_tokens[0] : lane_ == 1 ? with_tokens[1] : with_tokens[2]);
    }
  }

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
    ptx::arrive(stream_.queries.full(use));
  }

  __device__ void fill(const Job& job, const QueryPlace& place) {
    for (uint32_t h = 0; h < place.halves; ++h) stream_.queries.wait_empty(Use<2>(place.first + h));
    const uint32_t first = place.first % 2;
    for (uint32_t j = lane_; j < job.tokens; j += kWarp) {
      const uint32_t at = job.token_begin + j;
      const bool is_blind = call_.token_empty[at] != 0;
      const uint32_t position = call_.token_position[at];
      stream_.tokens[first * kHalfSlabRows + j] = {call_.token_order[at], is_blind ? ~0u : position};
      if ((job.flags & attention::kDirect) == 0)
        ptx::prefetch_l2(call_.arrived + arrived_at(call_, job, j, 0));  // will be added to
    }
    __syncwarp();
    if (job.tokens * call_.group <= Rows::kRowsOfQueryWarp) {
      Rows::template copy<2>(call_, shared_, stream_index_, job, first, 0, 1);
    }
    for (uint32_t h = 0; h < place.halves; ++h) ptx::arrive(stream_.queries.full(Use<2>(place.first + h)));
  }

  const AttendCall& call_;
  Shared& shared_;
  HopperStream<kPolicy>& stream_;
  uint32_t stream_index_, lane_;
};

}  // namespace headwater::backend::cuda
