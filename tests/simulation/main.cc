// The engine's tests, on a host back end or, with --runs-ahead, on the late device.
#include <gtest/gtest.h>

#include <string_view>

#include "simulation/engine_under_test.h"

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  headwater::testing::tests_run_ahead = argc > 1 && std::string_view(argv[1]) == "--runs-ahead";
  return RUN_ALL_TESTS();
}
