#include "engine/outbox.h"

#include <gtest/gtest.h>

#include "engine/inbox.h"

namespace headwater::engine {
namespace {

std::shared_ptr<Ticket> make_ticket(RequestId id, uint32_t n = 1, uint32_t top_logprobs = 0) {
  Request request;
  request.prompt = {1};
  request.n = n;
  request.sampling.top_logprobs = top_logprobs;
  return std::make_shared<Ticket>(id, std::move(request), 0);
}

Emission token(RequestId id, TokenId value) {
  return {.request = id, .token = value};
}

TEST(Outbox, GivesTheOldestEmissionOfAnyRequestFirst) {
  Outbox outbox(4);
  auto a = make_ticket(1, 3), b = make_ticket(2, 3);
  ASSERT_TRUE(outbox.open(a));
  ASSERT_TRUE(outbox.open(b));
  outbox.push(std::array<Outbox::Entry, 4>{{{b.get(), token(2, 10), false},
                                            {a.get(), token(1, 11), false},
                                            {a.get(), token(1, 12), false},
                                            {b.get(), token(2, 13), false}}});
  std::array<Emission, 3> out;
  ASSERT_EQ(outbox.poll_any(out), 3u);
  EXPECT_EQ(out[0].token, 10);
  EXPECT_EQ(out[1].token, 11);
  EXPECT_EQ(out[2].token, 12);
  EXPECT_EQ(outbox.poll(1, out), 0u);
  ASSERT_EQ(outbox.poll(2, out), 1u);
  EXPECT_EQ(out[0].token, 13);
}

TEST(Outbox, KnowsARequestUntilItsLastEmissionWasPolled) {
  Outbox outbox(1);
  auto ticket = make_ticket(1);
  ASSERT_TRUE(outbox.open(ticket));
  EXPECT_EQ(outbox.open(make_ticket(2)).code(), ErrorCode::kExhausted);
  outbox.push(std::array{Outbox::Entry{ticket.get(), token(1, 5), true}});
  EXPECT_NE(outbox.find(1), nullptr);
  std::array<Emission, 2> out;
  EXPECT_EQ(outbox.poll(1, out), 1u);
  EXPECT_EQ(outbox.find(1), nullptr);
  EXPECT_TRUE(outbox.open(make_ticket(2)));
}

TEST(Outbox, KeepsLogProbabilitiesAcrossTheEndOfTheRingAndAGrowth) {
  EmissionRing ring;
  ring.resize(2, 2);
  Emission emission{.token = 1, .top_count = 2};
  const auto push = [&](TokenId value) {
    emission.token = value;
    emission.top[1].token = value + 100;
    ring.push(emission, 0);
  };
  push(1);
  push(2);
  EXPECT_EQ(ring.pop().top[1].token, 101);
  push(3);  // wraps around
  ring.resize(3, 2);
  push(4);
  for (const TokenId value : {2, 3, 4}) {
    const Emission out = ring.pop();
    EXPECT_EQ(out.token, value);
    EXPECT_EQ(out.top[1].token, value + 100);
  }
  EXPECT_TRUE(ring.empty());
}

TEST(Inbox, BoundsRequestsAndPromptTokensUntilTheyLeave) {
  Inbox inbox(2, 10);
  ASSERT_TRUE(inbox.enter(6));
  const Status tokens = inbox.enter(5);
  EXPECT_EQ(tokens.code(), ErrorCode::kExhausted);
  EXPECT_NE(tokens.message().find("6 prompt tokens wait and 5 more"), std::string::npos) << tokens.message();
  ASSERT_TRUE(inbox.enter(4));
  EXPECT_NE(inbox.enter(1).message().find("2 requests wait"), std::string::npos);
  inbox.leave(6);
  EXPECT_TRUE(inbox.enter(5));
}

}  // namespace
}  // namespace headwater::engine
