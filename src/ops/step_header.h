// The beginning of every uploaded step block, and of each further plan in it.
#pragma once

#include <cstdint>

namespace headwater::ops {

// Pages of an item whose ids stand beside it: those of 128 keys, however small pages are.
inline constexpr uint32_t kFirstPages = 8;

// The sizes of a step as the device reads them.
struct StepHeader {
  uint32_t tokens;
  uint32_t sequences;
  uint32_t logits;
  uint32_t items;        // of the plan
  uint32_t items_large;  // Plan::items_large
  uint32_t reads_again;  // 1: the plan reads pages more than once
  uint32_t partials;     // slots in use
  uint32_t keys_new;     // Plan::keys_new
};

}  // namespace headwater::ops
