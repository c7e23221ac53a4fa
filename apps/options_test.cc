#include "apps/options.h"

#include <gtest/gtest.h>

namespace headwater::apps {
namespace {

TEST(Options, KvTypesGoByTheNamesThatOtherServersUse) {
  for (const char* name : {"f8", "fp8", "FP8", "f8_e4m3", "fp8_e4m3"}) {
    const Result<DType> dtype = parse_kv_dtype(name);
    ASSERT_TRUE(dtype) << name;
    EXPECT_EQ(*dtype, DType::kF8E4M3) << name;
  }
  const Result<DType> other = parse_kv_dtype("fp8_e5m2");
  EXPECT_EQ(other.status().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(other.status().message().find("bf16, f16, f32 or fp8"), std::string::npos);
}

}  // namespace
}  // namespace headwater::apps
