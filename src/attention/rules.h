// What one planner was created with, and the arithmetic that follows from it. Internal to the room.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "attention/plan.h"

namespace headwater::attention {

inline constexpr uint32_t kNone = 0xffffffffu;

inline uint32_t ceil_div(uint32_t value, uint32_t by) {
  return value / by + (value % by != 0);
}

// The cost model for one number of query tokens, in nanoseconds.
struct Rates {
  double fixed;       // the item and its rows
  double key_first;   // a key that no item before it reads
  double key_repeat;  // a key that one did
  double key_far;     // such a key in an item of far_keys or more
  double key_alone;   // any key without others that read; 0: as with them
  double state;       // one partial for each row
  double unsettled;   // when there are partials
  uint32_t parts;     // of a worker that it takes: all of Rules::parts(), or one
};

struct Rules {
  PlanSettings settings;
  DeviceShape device;
  PlanLimits limits;
  // Keys. Shared runs and pieces end at multiples of it, and a tail costs what the tail rounded up to it costs, so that
  // a plan stays the same while a tail grows inside its last quantum. `cut` in invariant mode, else the page size.
  uint32_t quantum = 0;
  double gain_min = 0;
  double step = 0;
  double merge = 0;
  double merge_state = 0;
  uint32_t near_keys = 0;
  uint32_t far_keys = 0;

  std::vector<Rates> rates_by_tokens;  // [tokens_item_max + 1]

  static Rules create(const PlanSettings& settings, const CostModel& cost, const DeviceShape& device,
                      const PlanLimits& limits) {
    Rules rules{settings, device, limits};
    rules.settings.cut = ceil_div(settings.cut, limits.page_size) * limits.page_size;
    rules.settings.shared_members_min = std::max(settings.shared_members_min, 2u);
    rules.device.tokens_item_max = std::min(device.tokens_item_max, limits.tokens_max);
    rules.gain_min = cost.gain_min;
    rules.step = cost.step;
    rules.merge = cost.merge;
    rules.merge_state = cost.merge_state;
    rules.near_keys = cost.near_keys;
    rules.far_keys = cost.far_keys;
    rules.quantum = settings.invariant ? rules.settings.cut : limits.page_size;
    for (uint32_t tokens = 0; tokens <= rules.device.tokens_item_max; ++tokens) {
      const uint32_t rows = tokens * device.group;
      const uint32_t parts = rules.is_large(tokens) ? rules.parts() : 1;
      const auto key = [&](double read) { return key_cost(cost, rows, read) * rules.parts() / parts; };
      // Whoever has half of a worker has not half of the memory's rate when the others do not read.
      const double key_alone = cost.key_alone > 0 ? key(cost.key_alone * parts / rules.parts()) : 0;
      rules.rates_by_tokens.push_back({cost.item + rows_cost(cost, rows), key(cost.key_first), key(cost.key_repeat),
                                       key(cost.key_far), key_alone, rows * cost.partial, cost.unsettled, parts});
    }
    return rules;
  }

  uint32_t page_size() const { return limits.page_size; }
  uint32_t parts() const { return device.tokens_half > 0 ? 2 : 1; }  // of a worker, that work side by side
  bool is_large(uint32_t tokens) const { return device.tokens_half > 0 && tokens > device.tokens_half; }
  uint32_t quantum_pages() const { return quantum / limits.page_size; }
  uint32_t round_down(uint32_t key) const { return key - key % quantum; }
  uint32_t round_up(uint32_t key) const { return ceil_div(key, quantum) * quantum; }
  uint32_t blocks(uint32_t tokens) const {
    return tokens <= device.tokens_item_max ? 1 : ceil_div(tokens, device.tokens_item_max);
  }

  // Cut intervals that the keys [begin, end) touch; end > begin.
  uint32_t cuts(uint32_t begin, uint32_t end) const { return (end - 1) / settings.cut - begin / settings.cut + 1; }

  // Start of the quantum that holds the first key visible from `position`.
  uint32_t visible_from(uint32_t position) const {
    if (settings.window == 0 || position < settings.window) return 0;
    return round_down(position - settings.window + 1);
  }

  // A key that another item read, in an item of `keys`.
  double key_again(const Rates& rates, uint32_t keys) const {
    if (keys <= near_keys) return rates.key_repeat;
    if (keys >= far_keys) return rates.key_far;
    return rates.key_repeat + (rates.key_far - rates.key_repeat) * (keys - near_keys) / (far_keys - near_keys);
  }

  // What `states` partials of each of its tokens cost an item.
  static double states_cost(const Rates& rates, uint32_t states) {
    return states == 0 ? 0 : rates.unsettled + rates.state * states;
  }

  const Rates& rates(uint32_t tokens) const { return rates_by_tokens[tokens]; }
};

}  // namespace headwater::attention
