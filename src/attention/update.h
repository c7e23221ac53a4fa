// What the next step may keep of this one. Internal to the room.
//
// Equal versions promise that page lists were only appended to. Then (forest.h, 4) the forest of a step without
// overlaps still holds, and as long as every sequence stays inside its last quantum and its window inside its first
// one, so does the decision, every cut and the merge table: lengths enter them rounded up to whole quanta.
#pragma once

#include <span>
#include <vector>

#include "attention/rules.h"

namespace headwater::attention {

enum class Reuse : uint8_t {
  kNothing,  // plan from scratch
  kForest,   // same sequences, grown: decide, cut and emit again
  kPlan,     // grown within their last quanta: patch
};

class PreviousStep {
 public:
  explicit PreviousStep(const Rules& rules);

  Reuse reusable(const PageTable& table);                       // also sets growth() unless kNothing
  std::span<const uint32_t> growth() const { return growth_; }  // [R] tokens since the previous step

  void remember(const PageTable& table, bool overlaps);  // after planning from scratch or from the forest
  void advance(const PageTable& table);                  // after patching

 private:
  uint32_t room_left(uint32_t kv_len, uint32_t q_len) const;

  const Rules& rules_;
  bool known_ = false;
  std::vector<uint64_t> versions_;
  std::vector<uint32_t> q_indptr_;
  std::vector<uint32_t> kv_len_;
  std::vector<uint32_t> kv_len_limit_;  // up to here the plan can be patched
  std::vector<uint32_t> growth_;
};

}  // namespace headwater::attention
