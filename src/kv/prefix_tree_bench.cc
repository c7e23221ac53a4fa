// Cost of the prefix tree a page: a full pool of 65,536 pages of 32 tokens, as 256 prompts of 256 pages that share
// half.
//   ninja bench_kv_prefix_tree && src/kv/bench_kv_prefix_tree
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "core/core.h"
#include "kv/prefix_tree.h"

namespace headwater::kv {
namespace {

constexpr uint32_t kPages = 65536;
constexpr uint32_t kPageSize = 32;
constexpr uint32_t kPagesPerPrompt = 256;
constexpr uint32_t kPrompts = 256;
constexpr int kRepeats = 9;

using Prompt = std::vector<TokenId>;

std::vector<Prompt> make_prompts() {
  Random random(1);
  Prompt shared(kPagesPerPrompt / 2 * kPageSize);
  for (TokenId& token : shared) token = static_cast<TokenId>(random.below(49152));
  std::vector<Prompt> prompts(kPrompts, shared);
  for (Prompt& prompt : prompts) {
    while (prompt.size() < kPagesPerPrompt * kPageSize) prompt.push_back(static_cast<TokenId>(random.below(49152)));
  }
  return prompts;
}

double ns_of(const std::function<void()>& work) {
  const SystemClock clock;
  const int64_t begin = clock.now_ns();
  work();
  return static_cast<double>(clock.now_ns() - begin);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

void insert_all(PrefixTree& tree, const std::vector<Prompt>& prompts) {
  PageId next = 0;
  for (const Prompt& prompt : prompts) {
    PageId parent = kNoPage;
    for (size_t begin = 0; begin < prompt.size(); begin += kPageSize) {
      parent = tree.insert(next, parent, {}, std::span(prompt).subspan(begin, kPageSize));
      next += parent == next;
    }
  }
}

void measure() {
  const std::vector<Prompt> prompts = make_prompts();
  const double pages = kPrompts * kPagesPerPrompt;
  std::vector<double> insert, walk, hash, evict;
  uint64_t sink = 0;
  uint32_t size = 0;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    PrefixTree tree({.pages = kPages, .page_size = kPageSize, .hash_key = {1, 2}});
    insert.push_back(ns_of([&] { insert_all(tree, prompts); }) / pages);
    size = tree.size();
    walk.push_back(ns_of([&] {
                     for (const Prompt& prompt : prompts) sink += tree.walk(prompt, {}, [](PageId) {});
                   }) /
                   pages);
    hash.push_back(ns_of([&] {
                     for (const Prompt& prompt : prompts) {
                       for (size_t begin = 0; begin < prompt.size(); begin += kPageSize) {
                         sink += hash_page({1, 2}, {3, 4}, std::span(prompt).subspan(begin, kPageSize)).low;
                       }
                     }
                   }) /
                   pages);
    for (PageId page = 0; page < size; ++page) tree.unhold(page);
    evict.push_back(ns_of([&] {
                      while (tree.evict_oldest() != kNoPage) ++sink;
                    }) /
                    size);
  }
  check(sink > 0, "nothing was measured");
  fmt::print(
      "{} pages of {} tokens in the tree; ns a page (median of {}): insert {:.0f}, walk {:.0f}, of which hash {:.0f}, "
      "evict {:.0f}\n",
      size, kPageSize, kRepeats, median(insert), median(walk), median(hash), median(evict));
}

}  // namespace
}  // namespace headwater::kv

int main() {
  headwater::kv::measure();
}
