#include "text/added_tokens.h"

namespace headwater::text {

uint32_t AddedTokens::find(uint32_t first, char byte) const {
  uint32_t node = first;
  while (node != kNone && nodes_[node].byte != byte) node = nodes_[node].sibling;
  return node;
}

void AddedTokens::add(std::string_view spelling, TokenId id, bool is_control) {
  check(!spelling.empty(), "an added token without a spelling");
  begins_[static_cast<uint8_t>(spelling[0])] = true;
  uint32_t parent = kNone;
  for (const char byte : spelling) {
    const uint32_t first = parent == kNone ? root_ : nodes_[parent].child;
    uint32_t node = find(first, byte);
    if (node == kNone) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({byte, first, kNone, kNoToken, false});
      (parent == kNone ? root_ : nodes_[parent].child) = node;
    }
    parent = node;
  }
  nodes_[parent].id = id;
  nodes_[parent].is_control = is_control;
}

AddedTokens::Match AddedTokens::longest(std::string_view text, size_t at, size_t control_end) const {
  Match best;
  uint32_t node = root_;
  for (size_t end = at; end < text.size();) {
    node = find(node, text[end++]);
    if (node == kNone) break;
    const Node& found = nodes_[node];
    if (found.id != kNoToken && (!found.is_control || end <= control_end)) best = {found.id, end - at};
    node = found.child;
  }
  return best;
}

size_t AddedTokens::next_candidate(std::string_view text, size_t at) const {
  while (at < text.size() && !begins_[static_cast<uint8_t>(text[at])]) ++at;
  return at;
}

}  // namespace headwater::text
