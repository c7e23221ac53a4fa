// Which kernels begin early. Skipped without a GPU.
#include <gtest/gtest.h>

#include "backend/cuda/overlap.cuh"
#include "backend/cuda/overlap_test/kernels.h"
#include "backend/cuda/runtime.h"

namespace headwater::backend::cuda::overlap_test {
namespace {

class OverlapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const auto traits = device_traits(); !traits) GTEST_SKIP() << traits.status().message();
  }
};

TEST_F(OverlapTest, AKernelOfOlderPtxBeginsWhenTheOneAheadHasEnded) {
  const Stream stream = *Stream::create();
  const DeviceBuffer written = *DeviceBuffer::create(sizeof(uint32_t)),
                     copied = *DeviceBuffer::create(sizeof(uint32_t));
  ASSERT_TRUE(
      checked(launch_copy_of_older_code(written.as<uint32_t>(), copied.as<uint32_t>(), stream.get()), "loading"));
  ASSERT_TRUE(stream.wait());
  ASSERT_TRUE(checked(launch_write_late(written.as<uint32_t>(), stream.get()), "the kernel ahead"));
  ASSERT_TRUE(checked(launch_copy_of_older_code(written.as<uint32_t>(), copied.as<uint32_t>(), stream.get()), "copy"));
  ASSERT_TRUE(stream.wait());
  uint32_t value = 0;
  ASSERT_TRUE(checked(cudaMemcpy(&value, copied.data(), sizeof value, cudaMemcpyDeviceToHost), "download"));
  EXPECT_EQ(value, 1u);
}

#ifdef HEADWATER_CUDA_HOPPER
constexpr bool kIsForHopper = true;
#else
constexpr bool kIsForHopper = false;  // built for others alone: what runs on Hopper may be older PTX
#endif

TEST_F(OverlapTest, AKernelOfThisBuildBeginsEarlyWhereTheDeviceLetsIt) {
  if (!kIsForHopper) GTEST_SKIP() << "not built for Hopper";
  int device = 0, major = 0;
  ASSERT_EQ(cudaGetDevice(&device), cudaSuccess);
  ASSERT_EQ(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), cudaSuccess);
  EXPECT_EQ(is_compiled_to_wait(kernel_of_this_build()), major >= 9);
}

}  // namespace
}  // namespace headwater::backend::cuda::overlap_test
