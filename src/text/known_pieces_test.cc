#include "text/known_pieces.h"

#include <gtest/gtest.h>

#include <map>

namespace headwater::text {
namespace {

TEST(KnownPieces, RecallsWhatThePieceBecameAtItsStepOrNothing) {
  KnownPieces known;
  known.open(4096);
  std::map<std::pair<std::string, size_t>, std::vector<TokenId>> became;
  Random random(1);
  size_t recalled = 0;
  for (TokenId round = 0; round < 100'000; ++round) {
    std::string piece(random.between(1, 16), '\0');
    for (char& byte : piece) byte = "\0\0\0a"[random.below(4)];
    const size_t step = random.below(2);
    std::vector<TokenId> ids;
    if (known.recall(piece, step, ids)) {
      ASSERT_EQ(ids, became.at({piece, step}));
      ++recalled;
    }
    ids.assign(random.below(11), round);
    known.keep(piece, step, ids);
    became[{piece, step}] = ids;
  }
  EXPECT_GT(recalled, 10'000u);
}

TEST(KnownPieces, KeepsNoLongPieceNoneOfManyIdsAndNothingBeforeItIsOpen) {
  KnownPieces known;
  EXPECT_FALSE(known.can_keep("a"));
  known.open(15);
  EXPECT_FALSE(known.can_keep("a"));
  known.open(1000);
  EXPECT_TRUE(known.can_keep("a"));
  EXPECT_FALSE(known.can_keep(""));
  EXPECT_TRUE(known.can_keep(std::string(16, 'a')));
  EXPECT_FALSE(known.can_keep(std::string(17, 'a')));
  std::vector<TokenId> ids(12, 7);
  known.keep("a", 0, ids);
  EXPECT_FALSE(known.recall("a", 0, ids));
}

}  // namespace
}  // namespace headwater::text
