#include "attention/validate.h"

#include <cmath>

namespace headwater::attention {
namespace {

template <typename... Args>
Status invalid(fmt::format_string<Args...> format, Args&&... args) {
  return error(ErrorCode::kInvalidArgument, format, std::forward<Args>(args)...);
}

Status check_sequence(const PageTable& table, const PlanLimits& limits, uint32_t r) {
  if (table.q_indptr[r + 1] < table.q_indptr[r]) return invalid("q_indptr falls at sequence {}", r);
  if (table.page_indptr[r + 1] < table.page_indptr[r]) return invalid("page_indptr falls at sequence {}", r);
  const uint32_t kv_len = table.kv_len[r];
  const uint32_t q_len = table.q_indptr[r + 1] - table.q_indptr[r];
  if (q_len > kv_len && !(kv_len == 0 && q_len == 1)) {
    return invalid("sequence {} has {} query tokens but only {} keys; append the tokens before planning", r, q_len,
                   kv_len);
  }
  const uint64_t pages = uint64_t{kv_len} / table.page_size + (kv_len % table.page_size != 0);
  if (pages > limits.pages_per_sequence_max) {
    return invalid("sequence {} has {} keys in {} pages; the limit is {} pages", r, kv_len, pages,
                   limits.pages_per_sequence_max);
  }
  if (table.page_indptr[r + 1] - table.page_indptr[r] < pages) {
    return invalid("sequence {} lists {} pages, its {} keys need {}", r,
                   table.page_indptr[r + 1] - table.page_indptr[r], kv_len, pages);
  }
  return Status();
}

}  // namespace

Status check_page_table(const PageTable& table, const PlanLimits& limits) {
  const size_t sequences = table.kv_len.size();
  if (table.page_size != limits.page_size) {
    return invalid("the table's page size is {}, the planner was created for {}", table.page_size, limits.page_size);
  }
  if (sequences > limits.sequences_max) {
    return invalid("{} sequences in one step; the limit is {}", sequences, limits.sequences_max);
  }
  if (table.page_indptr.size() != sequences + 1 || table.q_indptr.size() != sequences + 1) {
    return invalid("{} sequences need page_indptr and q_indptr of {} values; they have {} and {}", sequences,
                   sequences + 1, table.page_indptr.size(), table.q_indptr.size());
  }
  if (!table.versions.empty() && table.versions.size() != sequences) {
    return invalid("{} versions for {} sequences; pass one each, or none", table.versions.size(), sequences);
  }
  if (table.q_indptr[0] != 0) return invalid("q_indptr begins at {}; it must begin at 0", table.q_indptr[0]);
  for (uint32_t r = 0; r < sequences; ++r) HEADWATER_RETURN_IF_ERROR(check_sequence(table, limits, r));
  if (table.tokens() > limits.tokens_max) {
    return invalid("{} query tokens in one step; the limit is {}", table.tokens(), limits.tokens_max);
  }
  if (table.page_ids.size() < table.page_indptr.back()) {
    return invalid("page_indptr ends at {}, page_ids has {} values", table.page_indptr.back(), table.page_ids.size());
  }
  return Status();
}

Status check_planner(const PlanLimits& limits, const PlanSettings& settings, const CostModel& cost,
                     const DeviceShape& device) {
  constexpr uint64_t kKeysMax = uint64_t{1} << 30;  // keys of a sequence; positions stay far from 2^32
  if (limits.sequences_max == 0 || limits.tokens_max == 0 || limits.page_size == 0) {
    return invalid("sequences_max {}, tokens_max {} and page_size {} must be at least 1", limits.sequences_max,
                   limits.tokens_max, limits.page_size);
  }
  if (uint64_t{limits.pages_per_sequence_max} * limits.page_size > kKeysMax) {
    return invalid("{} pages of {} tokens a sequence; the limit is {} tokens", limits.pages_per_sequence_max,
                   limits.page_size, kKeysMax);
  }
  if (settings.cut == 0 || settings.cut > kKeysMax || settings.window > kKeysMax) {
    return invalid("cut {} must be in 1..{} and window {} in 0..{}", settings.cut, kKeysMax, settings.window, kKeysMax);
  }
  if (device.workers == 0 || device.kv_heads == 0 || device.group == 0 || device.tokens_item_max == 0) {
    return invalid("workers {}, kv_heads {}, group {} and tokens_item_max {} must be at least 1", device.workers,
                   device.kv_heads, device.group, device.tokens_item_max);
  }
  if (cost.rows_tile == 0) return invalid("rows_tile is 0; use the rows that share one pass over the keys, at least 1");
  if (!(cost.overlap >= 0 && cost.overlap <= 1)) return invalid("an overlap of {}; use 0 to 1", cost.overlap);
  if (cost.near_keys > cost.far_keys) return invalid("near_keys {} above far_keys {}", cost.near_keys, cost.far_keys);
  if (!(cost.gain_min >= 0 && cost.gain_min < 1)) return invalid("a gain_min of {}; use 0 to below 1", cost.gain_min);
  for (double value :
       {cost.step, cost.item, cost.key_first, cost.key_repeat, cost.key_far, cost.key_alone, cost.key_tile,
        cost.key_row, cost.row, cost.row_cheap, cost.partial, cost.unsettled, cost.merge, cost.merge_state}) {
    if (!std::isfinite(value) || value < 0) return invalid("a cost of {} ns; costs are finite and not negative", value);
  }
  return Status();
}

}  // namespace headwater::attention
