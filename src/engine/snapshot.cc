#include "engine/snapshot.h"

#include <algorithm>
#include <numeric>

#include "engine/core_engine.h"

namespace headwater::engine {
namespace {

using PageList = std::span<const PageId>;

struct RunFinder {
  std::span<const PageList> lists;
  uint32_t page_size;
  std::vector<SnapshotRun>& runs;
  std::vector<int32_t>& run_of;

  // `members` are sorted by their pages and have the first `depth` pages in common.
  void split(std::span<const uint32_t> members, size_t depth, int32_t parent) {
    for (size_t begin = 0; begin < members.size();) {
      const PageList& first = lists[members[begin]];
      size_t end = begin + 1;
      if (first.size() > depth) {
        const auto alike = [&](uint32_t other) {
          return lists[other].size() > depth && lists[other][depth] == first[depth];
        };
        while (end < members.size() && alike(members[end])) ++end;
      }
      if (end - begin > 1) add_run(members.subspan(begin, end - begin), depth, parent);
      begin = end;
    }
  }

  void add_run(std::span<const uint32_t> members, size_t depth, int32_t parent) {
    const PageList& first = lists[members.front()];
    const PageList& last = lists[members.back()];  // sorted: what these two have in common, all have
    const size_t common = static_cast<size_t>(std::ranges::mismatch(first, last).in1 - first.begin());
    const auto run = static_cast<int32_t>(runs.size());
    const auto pages = static_cast<uint32_t>(common - depth);
    runs.push_back({parent, pages, pages * page_size, static_cast<uint32_t>(members.size())});
    for (const uint32_t member : members) run_of[member] = run;
    split(members, common, run);
  }
};

}  // namespace

std::vector<SnapshotRun> shared_runs(std::span<const PageList> page_lists, uint32_t page_size,
                                     std::vector<int32_t>& run_of) {
  std::vector<uint32_t> order(page_lists.size());
  std::iota(order.begin(), order.end(), 0u);
  std::ranges::sort(order, [&](uint32_t a, uint32_t b) {
    return std::ranges::lexicographical_compare(page_lists[a], page_lists[b]);
  });
  run_of.assign(page_lists.size(), -1);
  std::vector<SnapshotRun> runs;
  RunFinder{page_lists, page_size, runs, run_of}.split(order, 0, -1);
  return runs;
}

Snapshot CoreEngine::snapshot() const {
  Snapshot snapshot{.page_size = sizing_.config.page_size,
                    .pages_total = sizing_.kv.pages,
                    .pages_free = cache_.pages_free(),
                    .pages_cached = cache_.pages_cached(),
                    .pages_held = cache_.pages_held(),
                    .last_step = outcome_};
  std::vector<PageList> page_lists;
  const auto add = [&](const Sequence* sequence, PageList pages) {
    snapshot.sequences.push_back({.request = sequence->request->ticket->id,
                                  .choice = sequence->choice,
                                  .running = sequence->phase == Phase::kRunning,
                                  .prompt_tokens = static_cast<uint32_t>(sequence->prompt().size()),
                                  .generated_tokens = static_cast<uint32_t>(sequence->generated().size()),
                                  .computed_tokens = sequence->computed,
                                  .pages = static_cast<uint32_t>(pages.size())});
  };
  for (const Sequence* sequence : running_) {
    page_lists.push_back(cache_.pages(sequence->slot));
    add(sequence, page_lists.back());
  }
  std::vector<int32_t> run_of;
  snapshot.runs = shared_runs(page_lists, snapshot.page_size, run_of);
  for (size_t i = 0; i < run_of.size(); ++i) snapshot.sequences[i].run = run_of[i];
  snapshot.sequences_waiting = static_cast<uint32_t>(waiting_.size());
  for (size_t i = 0; i < std::min(waiting_.size(), kSnapshotWaitingMax); ++i) add(waiting_[i], {});
  return snapshot;
}

}  // namespace headwater::engine
