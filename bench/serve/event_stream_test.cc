#include "bench/serve/event_stream.h"

#include <gtest/gtest.h>

#include <vector>

namespace headwater::bench::serve {
namespace {

using Events = std::vector<std::string>;

// Fed in pieces of `piece` bytes.
Events events_of(std::string_view bytes, size_t piece) {
  EventStream stream;
  Events events;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    EXPECT_TRUE(stream.feed(bytes.substr(at, piece), [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

TEST(EventStream, FindsTheSameEventsWhereverTheBytesAreCut) {
  const std::string text =
      ": keep-alive\n\ndata: {\"a\": 1}\n\nevent: x\nid: 7\ndata:no space\r\n\r\ndata: one\rdata\rdata:  two\r\r"
      "data: [DONE]\n\ndata: not ended";
  const Events expected{"{\"a\": 1}", "no space", "one\n\n two", "[DONE]"};
  for (size_t piece = 1; piece <= text.size(); ++piece) EXPECT_EQ(events_of(text, piece), expected) << piece;
}

TEST(EventStream, AnEventWithoutDataIsNone) {
  EXPECT_EQ(events_of("event: ping\n\n\n\ndatum: 1\n\n", 64), Events());
  EXPECT_EQ(events_of("data\n\n", 64), Events{""});
}

TEST(EventStream, RefusesAnEventWithoutEnd) {
  EventStream stream;
  const std::string bytes(1 << 20, 'x');
  bool fed = true;
  size_t total = 0;
  while (fed && total <= 2 * EventStream::kEventBytesMax) {
    fed = stream.feed(bytes, [](std::string_view) {});
    total += bytes.size();
  }
  EXPECT_FALSE(fed);
  EXPECT_LE(total, EventStream::kEventBytesMax + 2 * bytes.size());
}

}  // namespace
}  // namespace headwater::bench::serve
