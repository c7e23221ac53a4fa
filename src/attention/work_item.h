// The unit of work of a plan, as devices read it too: a contiguous range of query tokens against a contiguous range of keys.
#pragma once

#include <cstdint>

namespace headwater::attention {

struct WorkItem {
  uint32_t token_begin;  // plan order
  uint32_t token_count;
  uint32_t page_begin;  // index into PageTable::page_ids of the page that holds key_begin
  uint32_t key_begin;   // absolute position; a multiple of the page size
  uint32_t key_count;   // the last page may be used in part
  // First slot: cut c of token j (counted inside the item, cuts at absolute multiples of `cut`) has slot
  // partial_begin + c * token_count + j; a folding item has one slot a token, partial_begin + j. Unused when kDirect.
  uint32_t partial_begin;
  uint32_t flags;  // kFold, kDirect
};
// The first item of each of its tokens: fold all cuts, sink first, into one state.
inline constexpr uint32_t kFold = 1;
// The only item of each of its tokens (implies kFold): write the output row itself.
inline constexpr uint32_t kDirect = 2;

}  // namespace headwater::attention
