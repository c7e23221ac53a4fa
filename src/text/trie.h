// Strings by their prefixes, as a tree over bytes whose children lie side by side in the order of their bytes; built
// once from all strings, breadth first, in time proportional to their length (and n log n for sorting them).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace headwater::text {

class Trie {
 public:
  using Entry = std::pair<std::string_view, uint32_t>;  // not empty; its value. Of equal strings the last counts.
  explicit Trie(std::vector<Entry> entries);

  // Calls visit(bytes, value) for each entry that text begins with, the shortest first.
  template <typename Visit>
  void prefixes(std::string_view text, Visit visit) const {
    if (text.empty()) return;
    uint32_t node = roots_[static_cast<uint8_t>(text[0])];
    for (size_t bytes = 1; node != kNone; node = child(node, text[bytes++])) {
      if (nodes_[node].value != kNone) visit(bytes, nodes_[node].value);
      if (bytes == text.size()) break;
    }
  }
  bool begins(char byte) const { return roots_[static_cast<uint8_t>(byte)] != kNone; }
  bool is_empty() const { return nodes_.empty(); }

 private:
  static constexpr uint32_t kNone = 0xffffffffu;
  struct Node {
    uint32_t first_child;
    uint32_t value;     // kNone: no entry ends here
    uint16_t children;  // at most 256
    uint8_t byte;
  };
  uint32_t child(uint32_t node, char byte) const;

  std::vector<Node> nodes_;
  std::array<uint32_t, 256> roots_;  // by the first byte
};

}  // namespace headwater::text
