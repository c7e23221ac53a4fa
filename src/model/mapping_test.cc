#include "model/mapping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>

#include "model/file_signals.h"
#include "support/safetensors_writer.h"

namespace headwater::model {
namespace {

using headwater::testing::TestFolder;

// The child reads a page of a mapped file that has become shorter.
void read_what_is_cut_off(const std::string& path) {
  const auto mapping = Mapping::create(path);
  std::filesystem::resize_file(path, 100);
  const volatile std::byte last = mapping->bytes().back();
  (void)last;
  std::exit(0);
}

TEST(MappingDeathTest, AFileThatShrinksWhileItIsReadEndsTheProcessWithOneLine) {
  TestFolder folder;
  folder.write("a model.gguf", std::string(20000, 'x'));
  EXPECT_EXIT(
      {
        explain_lost_pages();
        read_what_is_cut_off(folder.file("a model.gguf"));
      },
      ::testing::ExitedWithCode(1), "^headwater: .*/a model.gguf: the file became shorter while it was in use");
}

// Also where what comes with the signal looks like an address inside of a file.
TEST(MappingDeathTest, ABusErrorThatIsNoFilesEndsTheProcessAsUsual) {
  TestFolder folder;
  folder.write("a model.gguf", std::string(20000, 'x'));
  EXPECT_EXIT(
      {
        explain_lost_pages();
        const auto mapping = Mapping::create(folder.file("a model.gguf"));
        sigval value{};
        value.sival_ptr = const_cast<std::byte*>(mapping->bytes().data());
        sigqueue(getpid(), SIGBUS, value);
        pause();
      },
      ::testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace headwater::model
