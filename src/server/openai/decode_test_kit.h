// Bodies of requests, and what decoding them gives.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/openai/served_test_kit.h"

namespace headwater::server::openai {

inline const TestModel kModel;

inline std::string repeat(std::string_view text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

inline std::string completion(std::string_view fields) {
  return fmt::format(R"({{"prompt": "hello"{}{}}})", fields.empty() ? "" : ", ", fields);
}

inline std::string chat(std::string_view fields) {
  return fmt::format(R"({{"messages": [{{"role": "user", "content": "hello"}}]{}{}}})", fields.empty() ? "" : ", ",
                     fields);
}

inline std::string message(std::string_view message) {
  return fmt::format(R"({{"messages": [{}]}})", message);
}

// The error of a body; a status of 200 when there is none.
inline ApiError error_of(Endpoint endpoint, std::string_view body, const ServedModel& served = kModel.served()) {
  Generation out;
  auto failed = decode_generation(endpoint, body, served, out);
  return failed ? *failed : ApiError{.status = 200};
}

inline Generation decoded(Endpoint endpoint, std::string_view body, const ServedModel& served = kModel.served()) {
  Generation out;
  const auto failed = decode_generation(endpoint, body, served, out);
  EXPECT_FALSE(failed) << body << ": " << failed->message;
  if (failed) out.prompts.resize(1);
  return out;
}

inline std::string rendered(std::string_view body, const TestModel& model = kModel) {
  const Generation out = decoded(Endpoint::kChat, body, model.served());
  return model.tokenizer().decode(out.prompts[0], false);
}

struct Wrong {
  std::string fields;
  std::string param;
  std::string expected;  // part of the message
};

inline void expect_wrong(Endpoint endpoint, const std::string& body, const Wrong& wrong) {
  const ApiError error = error_of(endpoint, body);
  EXPECT_EQ(error.status, 400u) << body;
  EXPECT_EQ(error.param, wrong.param) << body;
  EXPECT_EQ(error.type, "invalid_request_error");
  EXPECT_THAT(error.message, testing::HasSubstr(wrong.expected)) << body;
  EXPECT_LT(error.message.size(), 600u) << body;
}

}  // namespace headwater::server::openai
