#include "engine/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace headwater::engine {
namespace {

using ::testing::HasSubstr;

model::ModelShape shape() {
  model::ModelShape model;
  model.name = "tiny";
  model.layers = 2;
  model.q_heads = 4;
  model.kv_heads = 2;
  model.head_dim = 8;
  model.vocabulary = 100;
  model.context_max = 128;
  return model;
}
constexpr uint64_t kBytesToken = 2 * 2 * (8 + 8) * 2;  // layers, KV heads, keys and values, bf16
ops::BackendInfo backend() {
  return {.name = "test", .target = "", .workers = 1, .page_size_multiple = 16, .invariant = true};
}

constexpr ops::PoolMemory kMemory{1 << 20, 1 << 18, "a quarter"};

Sizing sizing_of(EngineConfig config) {
  return size_engine(config, shape(), backend(), kMemory).value();
}

TEST(Sizing, TakesWhatIsUsualInWholePages) {
  const Sizing sizing = sizing_of({});
  EXPECT_EQ(sizing.kv.pages, (1 << 20) / 4 / (kBytesToken * 32));
  EXPECT_EQ(sizing.config.kv_bytes, sizing.kv.pages * kBytesToken * 32);
  EXPECT_EQ(sizing.config.context_max, 128u);
  EXPECT_EQ(sizing.limits.pages_per_sequence_max, 4u);
}

TEST(Sizing, RefusesToStartWhereOneContextDoesNotFitAndNamesTheNumbers) {
  const Status status = size_engine({}, shape(), backend(), {1000, 250, "a quarter"}).status();
  EXPECT_EQ(status.code(), ErrorCode::kExhausted);
  EXPECT_THAT(status.message(), HasSubstr("128 tokens"));
  EXPECT_THAT(status.message(), HasSubstr(std::to_string(128 * kBytesToken)));
}

TEST(Sizing, TakesASmallerPoolWhenItIsAskedFor) {
  EngineConfig config;
  config.kv_bytes = 2 * 32 * kBytesToken + 5;
  EXPECT_EQ(sizing_of(config).kv.pages, 2u);
  EXPECT_EQ(sizing_of(config).sequence_tokens_max, 64u);
  config.kv_bytes = 5;
  EXPECT_THAT(size_engine(config, shape(), backend(), {}).status().message(), HasSubstr("less than one page"));
}

TEST(Sizing, MakesRoomForAPlanForEachWindowAndRefusesMoreThanAStepHas) {
  model::ModelShape model = shape();
  EXPECT_EQ(sizing_of({}).limits.plans, 1u);
  model.windows = {64, 0};
  EXPECT_EQ(size_engine({}, model, backend(), kMemory).value().limits.plans, 2u);
  EXPECT_EQ(model.widest_plan(), 1u);
  model.windows = {64, 32};
  EXPECT_EQ(model.widest_plan(), 0u);
  model.windows = {64, 32, 0};
  const Status status = size_engine({}, model, backend(), kMemory).status();
  EXPECT_EQ(status.code(), ErrorCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("3 different attention windows"));
}

TEST(Sizing, CutsAndPromisesWhatTheBackEndDoes) {
  EngineConfig config;
  EXPECT_EQ(sizing_of(config).config.attention.cut, 256u);
  EXPECT_TRUE(sizing_of(config).config.attention.invariant);
  ops::BackendInfo free = backend();
  free.invariant = false;
  free.cut = 512;
  EXPECT_EQ(size_engine(config, shape(), free, kMemory)->config.attention.cut, 512u);
  EXPECT_FALSE(size_engine(config, shape(), free, kMemory)->config.attention.invariant);
  config.attention = {.invariant = false, .cut = 64};
  EXPECT_EQ(size_engine(config, shape(), free, kMemory)->config.attention.cut, 64u);
  EXPECT_FALSE(sizing_of(config).config.attention.invariant);
}

TEST(Sizing, RunsAheadWhereTheBackEndDoesAndNobodyObjects) {
  ops::BackendInfo ahead = backend();
  ahead.runs_ahead = true;
  EXPECT_FALSE(sizing_of({}).config.run_ahead);
  EXPECT_TRUE(size_engine({}, shape(), ahead, kMemory)->config.run_ahead);
  EXPECT_FALSE(size_engine({.run_ahead = false}, shape(), ahead, kMemory)->config.run_ahead);
}

TEST(Sizing, RefusesAPageSizeTheBackEndCannotTakeAndNamesOneItCan) {
  EngineConfig config;
  config.page_size = 24;
  EXPECT_THAT(size_engine(config, shape(), backend(), kMemory).status().message(), HasSubstr("use 32"));
}

TEST(Sizing, RefusesAContextLongerThanTheModels) {
  EngineConfig config;
  config.context_max = 129;
  const Status status = size_engine(config, shape(), backend(), kMemory).status();
  EXPECT_THAT(status.message(), HasSubstr("129"));
  EXPECT_THAT(status.message(), HasSubstr("128"));
}

std::string refusal(const std::function<void(Request&)>& change, EngineConfig config = {}) {
  Request request;
  request.prompt = {1, 2, 3};
  change(request);
  const Status status = validate(request, sizing_of(config), 100);
  EXPECT_TRUE(status || status.code() == ErrorCode::kInvalidArgument);
  return status.message();
}

TEST(Validate, RefusesWhatCanNeverFitWithBothNumbers) {
  EXPECT_EQ(refusal([](Request& r) { r.sampling.tokens_max = 125; }), "");
  const std::string context = refusal([](Request& r) { r.sampling.tokens_max = 126; });
  EXPECT_THAT(context, HasSubstr("are 129"));
  EXPECT_THAT(context, HasSubstr("128 tokens"));
  EngineConfig small;
  small.kv_bytes = 32 * kBytesToken;
  const std::string pool = refusal([](Request& r) { r.sampling.tokens_max = 30; }, small);
  EXPECT_THAT(pool, HasSubstr("are 33"));
  EXPECT_THAT(pool, HasSubstr("32 tokens that all KV pages hold"));
  small.kv_bytes = 0;
  small.queue_tokens_max = 2;
  EXPECT_THAT(refusal([](Request&) {}, small), HasSubstr("3 prompt tokens are more than the queue's 2"));
}

TEST(Validate, RefusesValuesOutOfRangeAndNamesTheField) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal([](Request& r) { r.prompt.clear(); }), HasSubstr("prompt"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt[1] = -1; }), HasSubstr("token id -1"));
  EXPECT_THAT(refusal([](Request& r) { r.prompt[1] = 100; }), HasSubstr("0 to 99"));
  EXPECT_THAT(refusal([](Request& r) { r.n = 0; }), HasSubstr("n is 0"));
  EXPECT_THAT(refusal([](Request& r) { r.n = 129; }), HasSubstr("128"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.tokens_max = 0; }), HasSubstr("tokens_max is 0"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.tokens_min = 17; }), HasSubstr("tokens_min 17"));
  EXPECT_THAT(refusal([&](Request& r) { r.sampling.temperature = nan; }), HasSubstr("temperature"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.temperature = -1; }), HasSubstr("[0, 2]"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.min_p = 1.5f; }), HasSubstr("min_p"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.repetition_penalty = 0; }), HasSubstr("repetition_penalty"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.frequency_penalty = 3; }), HasSubstr("frequency_penalty"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.presence_penalty = -3; }), HasSubstr("presence_penalty"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.logit_bias = {{100, 1}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([&](Request& r) { r.sampling.logit_bias = {{1, nan}}; }), HasSubstr("logit_bias"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.stop_ids = {-5}; }), HasSubstr("stop_ids"));
  EXPECT_THAT(refusal([](Request& r) { r.sampling.top_logprobs = 21; }), HasSubstr("20"));
}

}  // namespace
}  // namespace headwater::engine
