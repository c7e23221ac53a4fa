// The contract of the heart: what one step attends, as work items plus a merge table. Host only.
//
// Every attention call is a plan. Plain decode is a plan whose items have one sequence each; split-KV is the same item
// cut in pieces; a prefill chunk is items with many query tokens under the causal limit; a shared prefix is an item
// with the tokens of many sequences; nested prefixes are more such items. Back ends run attend (items) and merge (the
// table) and never learn the word prefix.
//
//   page table (CSR)            plan order (depth first)          items: tokens x keys
//   s0: A A A B B x             t0 = s0  t1 = s2  t2 = s1         [t0..t2] x A   fold -> partial (or output)
//   s1: A A A y                                                   [t0..t1] x B   one partial a cut
//   s2: A A A B B z                                               [t0] x x  [t1] x z  [t2] x y
//
// Words. A *row* is one (query token, query head) pair. A *run* is a stretch of consecutive pages at the same page
// index in one or more sequences. A *partial* (state) is (v[D], lse2) of one row: v normalised by its own denominator,
// float32; lse2 = m + log2(l), base 2, scores scaled by scale * log2(e). The empty state is v = 0, lse2 = -inf.
//
// Keys are cut at absolute positions that are multiples of `cut`: the state of each cut is computed from scratch, and a
// row's output is the left fold of its cut states in key order (its sink first). So the bits of an output depend on
// neither the grouping nor the batch. The *first* item of each token in key order folds its cuts locally and emits one
// state; every later item emits one partial a cut; merge folds them in table order. (FlashInfer's cascade and Hydragen,
// arXiv 2402.05099, merge the same states without fixing an order.)
// Where bits may depend on the grouping (PlanSettings::invariant off), a cut of kNoCut makes one state of every item.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "attention/work_item.h"
#include "core/core.h"

namespace headwater::attention {

// -------------------------------------------------------------------------------------------------------------- inputs

// One step as the planner sees it. Sequence r owns query tokens [q_indptr[r], q_indptr[r + 1]) of the batch; query
// token i of it stands at absolute position kv_len[r] - q_len + i and sees keys up to and including its own position.
struct PageTable {
  uint32_t page_size;                     // tokens a page
  std::span<const uint32_t> page_indptr;  // [R + 1] into page_ids
  std::span<const PageId> page_ids;       // sequence r has at least ceil(kv_len[r] / page_size) pages; more are ignored
  std::span<const uint32_t> kv_len;       // [R] tokens visible after this step's append; 0 for a padded row
  std::span<const uint32_t> q_indptr;     // [R + 1]; q_len = difference, <= kv_len (padded row: q_len 0 or 1, kv_len 0)
  // [R] or empty. Equal non-zero versions in two consecutive calls promise: same sequence, and the shorter page list is
  // a prefix of the longer one. Empty or 0: nothing is promised, the step is planned from scratch.
  std::span<const uint64_t> versions;

  uint32_t sequences() const { return static_cast<uint32_t>(kv_len.size()); }
  uint32_t tokens() const { return q_indptr.empty() ? 0 : q_indptr.back(); }
};

enum class Sharing : uint8_t { kAuto, kOff, kAlways };
// auto|off|always; 0 false no = off, 1 true yes on = auto; else an error
Result<Sharing> parse_sharing(std::string_view text);
const char* to_string(Sharing sharing);

inline constexpr uint32_t kNoCut = 1u << 30;  // keys: all are one cut

struct PlanSettings {
  Sharing sharing = Sharing::kAuto;
  bool invariant = true;          // shared runs hold whole cuts only; pieces end at multiples of `cut`
  uint32_t cut = 256;             // keys; a multiple of the page size (rounded up to one when the planner is created)
  uint32_t shared_pages_min = 0;  // 0: whatever the cost model says
  uint32_t shared_members_min = 2;
  uint32_t window = 0;          // sliding window in tokens, absolute positions; 0: none. Key k is visible to position p
                                // iff k <= p and (window == 0 or p - k < window)
  bool inject_failure = false;  // test: every step that would share fails over to flat with reason kFailed
};

// What a piece of work costs one worker while the others work too, in nanoseconds for one KV head. Additive over items:
//   cost(rows, keys) = item + keys * join(read, ceil(rows / rows_tile) * key_tile + rows * key_row)
//                      + rows_cost(rows) + rows * partial * states + (states > 0 ? unsettled : 0)
// with read = key_first for the first item over a run in this step (plan order); for later ones key_repeat, but key_far in
// items of far_keys and more, since then the near cache has lost a key before an item comes back to it (between near_keys
// and far_keys in proportion). join(a, b) = a + b - overlap * min(a, b). States: 0 for a direct item, 1 for a folding one, and one a cut for the others. A tail counts its
// last cut (adaptive mode: page) as half full, so that a plan does not change while a tail grows inside it.
// The longest item and those that follow it on its worker bound a step too, at what a key costs whoever has the memory to
// himself: read = key_alone, if it is given.
struct CostModel {
  double step = 0;  // of the whole plan, once: attend and merge begun and ended
  double item = 300;
  double key_first = 8.0;   // one key and value from memory
  double key_repeat = 2.5;  // from the cache: shared pages that other items read in the same step
  double key_far = 2.5;     // the same from a cache farther off
  double key_alone = 0;     // without others that read; 0: as with them
  uint32_t near_keys = 1u << 30;
  uint32_t far_keys = 1u << 30;
  double overlap = 1;  // of reading and arithmetic: 1 the longer hides the shorter, 0 they add up
  uint32_t rows_tile = 1;
  double key_tile = 1.5;  // arithmetic of one row tile on one key
  double key_row = 0;     // of each of its rows
  double row = 20;        // the first rows_dear rows of an item
  uint32_t rows_dear = 1u << 30;
  double row_cheap = 0;  // each further one
  double gain_min = 0;  // share of the flat makespan that sharing must save to be taken: the error of the figures above
  double partial = 60;  // one row's state written and merged
  double unsettled = 0;  // an item that does not write its output itself
  double merge = 0;      // once, when anything is merged, and for each state of the token that has the most
  double merge_state = 0;
};

inline double rows_cost(const CostModel& cost, uint32_t rows) {
  const uint32_t dear = rows < cost.rows_dear ? rows : cost.rows_dear;
  return dear * cost.row + (rows - dear) * cost.row_cheap;
}

// What a key costs an item of `rows` rows: reading it takes `read`, beside its arithmetic.
inline double key_cost(const CostModel& cost, uint32_t rows, double read) {
  const uint32_t tiles = (rows + cost.rows_tile - 1) / cost.rows_tile;
  const double arithmetic = tiles * cost.key_tile + rows * cost.key_row;
  return read + arithmetic - cost.overlap * (read < arithmetic ? read : arithmetic);
}

struct DeviceShape {
  uint32_t workers = 1;           // cores or SMs
  uint32_t kv_heads = 1;          // items run once per KV head
  uint32_t group = 1;             // query heads per KV head (G)
  uint32_t tokens_item_max = 64;  // an item never has more query tokens; bounds a worker's scratch
  uint64_t kv_bytes_token = 0;    // of all KV heads of one layer, for the byte counts in Outcome
  // 0, or: a worker does two items of up to so many query tokens at a time, each with half of its rates, or one larger
  // item. Larger ones come first in the plan.
  uint32_t tokens_half = 0;
};

// Array sizes. A flat plan of any step within these limits always fits; sharing that does not fit falls back to flat.
struct PlanLimits {
  uint32_t sequences_max = 0;
  uint32_t tokens_max = 0;  // query tokens a step
  uint32_t pages_per_sequence_max = 0;
  uint32_t page_size = 32;
  uint32_t workers = 1;        // that share a step
  uint32_t items_max() const;  // the formulas are in plan.cc and tested
  uint32_t partials_max() const;
};

// ------------------------------------------------------------------------------------------------------------- outputs

enum class Path : uint8_t { kFlat, kShared, kMixed };  // mixed: some tokens took a shared item, others did not
const char* to_string(Path path);

// Why a run common to two or more sequences was not attended once. A closed list.
enum class NotShared : uint8_t {
  kOff,            // sharing is off
  kNothingShared,  // no two sequences have a page in common
  kOneMember,      // fewer members than shared_members_min
  kBelowCost,      // attending it once would cost more than it saves
  kBelowMinimum,   // shorter than shared_pages_min
  kLastPage,       // the rest of the run is some member's last page
  kUncomputed,     // the rest of the run is not before every member's first query token
  kWindow,         // no member can see it through the window
  kPartialCut,     // the rest of the run is shorter than a cut
  kPlanCapacity,   // the plan's arrays are full
  kFailed,         // planning failed (injected); the step ran flat
};
inline constexpr size_t kNotSharedKinds = 11;
const char* to_string(NotShared reason);

struct Outcome {
  Path path = Path::kFlat;
  uint32_t groups = 0;         // shared nodes attended once, nested ones too
  uint32_t roots = 0;          // of those, the outermost ones
  uint32_t depth = 0;          // longest chain of attended nodes
  uint32_t members = 0;        // sequences of the largest group
  uint32_t members_total = 0;  // sequences in any group
  uint32_t shared_pages = 0;   // pages attended once, summed over nodes
  uint64_t tokens_saved = 0;   // sum over attended nodes of len * (members - 1): tokens not read again
  uint32_t items = 0;
  uint32_t splits = 0;        // items beyond one per run and token block: pieces cut along the keys
  uint64_t bytes_read = 0;    // one layer, all KV heads, as planned (each item reads its keys once)
  uint64_t bytes_flat = 0;    // what the flat plan reads
  uint64_t bytes_unique = 0;  // every visible page once (from the cut on that holds the window's first key)
  double predicted_ns = 0;    // attend and merge of one layer: the makespan over workers, and CostModel::step
  bool incremental = false;   // this step's plan was updated, or made from the previous forest
  std::array<uint32_t, kNotSharedKinds> not_shared{};  // common runs not attended once, by reason
  NotShared reason() const;  // the most telling reason of a flat step: the first non-zero kind in the order failed,
                             // plan_capacity, off, below_cost, partial_cut, ... nothing_shared
};

// Views into arrays that the Planner owns; valid until its next plan().
struct Plan {
  std::span<const WorkItem> items;           // large ones, then the others; each longest first
  std::span<const uint32_t> token_order;     // [T] plan position -> batch token
  std::span<const uint32_t> token_position;  // [T] plan position -> absolute position of the query token
  std::span<const uint32_t> merge_indptr;    // [T + 1] by plan position; empty range: kDirect, or no key at all
  std::span<const uint32_t> merge_slots;     // partial slots of a token in key order
  std::span<const uint8_t> token_empty;      // [T] 1: no visible key; output 0 (and lse2 = its sink, or -inf)
  uint32_t partials = 0;                     // slots in use
  uint32_t cut = 0;
  uint32_t window = 0;
  Outcome outcome;
  uint32_t items_large = 0;  // leading items of more than DeviceShape::tokens_half query tokens
  uint32_t keys_new =
      1u << 30;  // at most: the last keys of a sequence that are its query tokens' own, new in this step
};

// ------------------------------------------------------------------------------------------------------------- planner

// Pure: the plan depends on the arguments alone; the previous plan is used only to reach the same plan sooner (when
// every version is unchanged, the forest is kept; when also lengths grew within their last cut, items are patched in
// place). Allocates in create() only. Under kAuto, a sequence whose own query tokens fill an item takes no part in
// sharing.
class Planner {
 public:
  static Result<Planner> create(const PlanLimits& limits, const PlanSettings& settings, const CostModel& cost,
                                const DeviceShape& device);
  Planner(Planner&&) noexcept;
  Planner& operator=(Planner&&) noexcept;
  ~Planner();

  // kInvalidArgument when the table breaks the rules above or the limits (names the sequence and the value).
  Result<const Plan*> plan(const PageTable& table);
  Result<const Plan*> plan_from_scratch(const PageTable& table);  // ignores the previous plan
  const PlanSettings& settings() const;
  const PlanLimits& limits() const;

 private:
  struct Impl;
  explicit Planner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headwater::attention
