#include "bench/workload.h"

#include <algorithm>
#include <map>
#include <numeric>

namespace headwater::bench {

uint32_t Cell::shared() const {
  return std::accumulate(tokens.begin(), tokens.end() - 1, 0u);
}

uint64_t Cell::unique_tokens() const {
  uint64_t total = 0;
  for (size_t level = 0; level < nodes.size(); ++level) total += uint64_t{nodes[level]} * tokens[level];
  return total;
}

Cell prefix_cell(uint32_t batch, uint32_t shared, uint32_t tail, uint32_t q_heads, uint32_t kv_heads, uint32_t head_dim,
                 uint32_t page) {
  Cell cell;
  cell.name = fmt::format("B{} S{} U{} {}/{} D{} p{}", batch, shared, tail, q_heads, kv_heads, head_dim, page);
  cell.nodes = {1, batch};
  cell.tokens = {shared, tail};
  cell.q_heads = q_heads;
  cell.kv_heads = kv_heads;
  cell.head_dim = head_dim;
  cell.page = page;
  return cell;
}

Workload Workload::create(const Cell& cell) {
  Workload work;
  work.cell = cell;
  std::map<std::tuple<size_t, uint32_t, uint32_t>, PageId> known;  // (level, node, page index) -> page
  work.page_indptr = work.q_indptr = {0};
  Random random(3);
  for (uint32_t sequence = 0; sequence < cell.batch(); ++sequence) {
    size_t level = 0;
    uint32_t level_end = cell.tokens[0];
    const uint32_t length =
        cell.shared() + (cell.tail_min > 0 ? random.between(cell.tail_min, cell.tail()) : cell.tail());
    for (uint32_t index = 0; index * cell.page < length; ++index) {
      const uint32_t last_token = (index + 1) * cell.page - 1;
      while (level + 1 < cell.nodes.size() && last_token >= level_end) level_end += cell.tokens[++level];
      // A page that is not full belongs to its sequence alone.
      const bool full = last_token < length;
      const size_t owner_level = full ? level : cell.nodes.size() - 1;
      const auto node = static_cast<uint32_t>(uint64_t{sequence} * cell.nodes[owner_level] / cell.batch());
      const auto [entry, fresh] = known.try_emplace({owner_level, node, index}, work.pages);
      if (fresh) ++work.pages;
      work.page_ids.push_back(entry->second);
    }
    work.page_indptr.push_back(static_cast<uint32_t>(work.page_ids.size()));
    work.kv_len.push_back(length);
    work.q_indptr.push_back(work.q_indptr.back() + std::min(cell.q_len, length));
  }
  for (uint32_t row = 0; row < cell.padded; ++row) {
    work.page_indptr.push_back(work.page_indptr.back());
    work.kv_len.push_back(0);
    work.q_indptr.push_back(work.q_indptr.back() + 1);
  }
  return work;
}

double Workload::token_keys() const {
  double pairs = 0;
  for (size_t r = 0; r < kv_len.size(); ++r) {
    const uint32_t q_len = q_indptr[r + 1] - q_indptr[r];
    for (uint32_t i = 0; i < q_len && kv_len[r] > 0; ++i) {
      const uint32_t visible = kv_len[r] - q_len + i + 1;
      pairs += cell.window == 0 ? visible : std::min(visible, cell.window);
    }
  }
  return pairs;
}

ops::StepLimits Workload::limits(uint32_t workers) const {
  ops::StepLimits limits;
  limits.sequences_max = static_cast<uint32_t>(kv_len.size());
  limits.tokens_max = std::max(512u, q_indptr.back());
  limits.pages_per_sequence_max = std::max(1u, (cell.length() + cell.page - 1) / cell.page);
  limits.page_size = cell.page;
  limits.logits_max = 1;
  limits.workers = workers;
  return limits;
}

Status fill_pool(ops::Backend& backend, Matrices& matrices, ops::KvPool& pool, const Workload& workload,
                 uint64_t seed) {
  const Cell& cell = workload.cell;
  constexpr uint32_t kTokens = 512;
  const uint32_t columns = cell.kv_heads * cell.head_dim;
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix keys, matrices.take(kTokens, columns));
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix values, matrices.take(kTokens, columns));
  HEADWATER_ASSIGN_OR_RETURN(const ops::Matrix queries, matrices.take(kTokens, cell.q_heads * cell.head_dim));
  Random random(seed);
  std::vector<float> rows(uint64_t{kTokens} * columns);
  for (const ops::Matrix& matrix : {keys, values}) {
    for (float& value : rows) value = random.normal();
    HEADWATER_RETURN_IF_ERROR(backend.upload(matrix, rows));
  }
  std::vector<float> frequencies(cell.head_dim / 2);
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] = 1.0f / static_cast<float>(1 + i);

  HEADWATER_ASSIGN_OR_RETURN(ops::StepBlock block, backend.create_step_block({1, kTokens, 1, cell.page, 1}));
  const uint64_t slots = uint64_t{workload.pages} * cell.page;
  for (uint64_t begin = 0; begin < slots; begin += kTokens) {
    const auto count = static_cast<uint32_t>(std::min<uint64_t>(kTokens, slots - begin));
    block.layout(1, count, 0, 0);
    for (uint32_t i = 0; i < count; ++i) {
      block.token_ids()[i] = 0;
      block.append_pages()[i] = static_cast<PageId>((begin + i) / cell.page);
      block.append_slots()[i] = static_cast<uint32_t>((begin + i) % cell.page);
      block.positions()[i] = static_cast<uint32_t>((begin + i) % 4096);
    }
    HEADWATER_ASSIGN_OR_RETURN(const ops::DeviceBatch batch, backend.begin_step(block));
    const auto top = [&](const ops::Matrix& matrix) {
      return ops::Matrix{matrix.data, count, matrix.columns, matrix.stride};
    };
    backend.rope_append({top(queries),
                         top(keys),
                         top(values),
                         &batch,
                         {ops::RopeStyle::kAdjacentPairs, cell.head_dim, frequencies.data()},
                         &pool,
                         0});
    HEADWATER_RETURN_IF_ERROR(backend.finish());
  }
  return {};
}

}  // namespace headwater::bench
