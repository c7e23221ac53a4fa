#include "text/trie.h"

#include <algorithm>

namespace headwater::text {

Trie::Trie(std::vector<Entry> entries) {
  roots_.fill(kNone);
  std::stable_sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.first < b.first; });
  struct Range {  // of the entries below a node
    size_t begin;
    size_t end;
    size_t depth;
  };
  std::vector<Range> ranges;  // ranges[node]
  // Adds a node for each byte that follows the first `depth` bytes of entries [begin, end).
  const auto add_children = [&](size_t begin, size_t end, size_t depth) {
    while (begin < end) {
      const char byte = entries[begin].first[depth];
      size_t next = begin;
      while (next < end && entries[next].first[depth] == byte) ++next;
      nodes_.push_back({0, kNone, 0, static_cast<uint8_t>(byte)});
      ranges.push_back({begin, next, depth + 1});
      begin = next;
    }
  };
  add_children(0, entries.size(), 0);
  for (uint32_t root = 0; root < nodes_.size(); ++root) roots_[nodes_[root].byte] = root;
  for (size_t node = 0; node < nodes_.size(); ++node) {
    auto [begin, end, depth] = ranges[node];
    for (; begin < end && entries[begin].first.size() == depth; ++begin) nodes_[node].value = entries[begin].second;
    const size_t first = nodes_.size();
    add_children(begin, end, depth);
    nodes_[node].first_child = static_cast<uint32_t>(first);
    nodes_[node].children = static_cast<uint16_t>(nodes_.size() - first);
  }
}

uint32_t Trie::child(uint32_t node, char byte) const {
  const auto first = nodes_.begin() + nodes_[node].first_child;
  const auto last = first + nodes_[node].children;
  const auto found = std::lower_bound(first, last, static_cast<uint8_t>(byte),
                                      [](const Node& child, uint8_t wanted) { return child.byte < wanted; });
  return found == last || found->byte != static_cast<uint8_t>(byte) ? kNone
                                                                    : static_cast<uint32_t>(found - nodes_.begin());
}

}  // namespace headwater::text
