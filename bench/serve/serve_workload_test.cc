#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "bench/serve/workload.h"

namespace headwater::bench::serve {
namespace {

std::vector<TokenId> prefix_of(const Prompt& prompt, uint32_t tokens) {
  return {prompt.ids.begin(), prompt.ids.begin() + tokens};
}

TEST(ServeWorkload, ChatsOfAGroupShareExactlyThePrefix) {
  WorkloadShape shape;
  shape.shared_tokens = 50;
  shape.groups = 2;
  shape.prompt_tokens = 8;
  const std::vector<Prompt> prompts = make_prompts(shape, 3, 6);
  std::set<std::vector<TokenId>> all;
  for (const Prompt& prompt : prompts) {
    ASSERT_EQ(prompt.ids.size(), 58u);
    for (const TokenId id : prompt.ids) EXPECT_TRUE(id >= kIdBegin && id < kIdEnd);
    all.insert(prompt.ids);
  }
  EXPECT_EQ(all.size(), 6u);
  EXPECT_EQ(prefix_of(prompts[0], 50), prefix_of(prompts[2], 50));
  EXPECT_NE(prefix_of(prompts[0], 50), prefix_of(prompts[1], 50));
  EXPECT_NE(prompts[0].ids[50], prompts[2].ids[50]);
}

TEST(ServeWorkload, LevelsKeepThePrefixUnlessCold) {
  WorkloadShape shape;
  shape.shared_tokens = 50;
  const Prompt one = make_prompts(shape, 1, 1)[0], two = make_prompts(shape, 2, 1)[0];
  EXPECT_EQ(prefix_of(one, 50), prefix_of(two, 50));
  EXPECT_NE(one.ids, two.ids);
  EXPECT_EQ(make_prompts(shape, 1, 1)[0].ids, one.ids);
  shape.seed = 2;
  EXPECT_NE(prefix_of(make_prompts(shape, 1, 1)[0], 50), prefix_of(one, 50));
  shape.cold = true;
  EXPECT_NE(prefix_of(make_prompts(shape, 1, 1)[0], 50), prefix_of(make_prompts(shape, 2, 1)[0], 50));
}

TEST(ServeWorkload, BodiesAskForAGreedyStreamWithUsage) {
  WorkloadShape shape;
  shape.shared_tokens = 3;
  shape.prompt_tokens = 2;
  shape.tokens_max = 9;
  boost::json::value body = boost::json::parse(request_body(shape, "m", make_prompts(shape, 0, 1)[0]));
  EXPECT_EQ(body.at("prompt").as_array().size(), 5u);
  EXPECT_EQ(body.at("max_tokens").as_int64(), 9);
  EXPECT_EQ(body.at("temperature").as_int64(), 0);
  EXPECT_TRUE(body.at("ignore_eos").as_bool());
  EXPECT_TRUE(body.at("stream").as_bool());
  EXPECT_TRUE(body.at("stream_options").at("include_usage").as_bool());

  shape.endpoint = Endpoint::kChat;
  shape.shared_tokens = 30;
  shape.tokens_per_word = 1.5;
  body = boost::json::parse(request_body(shape, "m", make_prompts(shape, 0, 1)[0]));
  const boost::json::array& messages = body.at("messages").as_array();
  ASSERT_EQ(messages.size(), 2u);
  EXPECT_EQ(messages[0].at("role").as_string(), "system");
  const boost::json::string& system = messages[0].at("content").as_string();
  EXPECT_EQ(std::count(system.begin(), system.end(), ' '), 19);  // 20 words of 1.5 tokens
}

}  // namespace
}  // namespace headwater::bench::serve
