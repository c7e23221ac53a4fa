#include "apps/costs_file.h"

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "backend/registry/registry.h"
#include "observe/log.h"

namespace headwater::apps {
namespace {

namespace fs = std::filesystem;

class CostsFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "headwater_costs_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    backend_ = backend::create_backend("cpu", {1, "scalar"}).value();
    const ops::BackendInfo& info = backend_->info();
    file_ = {info.costs_version, "2026-11-30", info.name, info.device, info.workers, {}};
    static const ops::Costs measured = backend_->measure_costs(0).value();
    file_.targets["scalar"] = measured;
    observe::logger().sinks().push_back(sink_);
  }
  void TearDown() override {
    observe::logger().sinks().pop_back();
    fs::permissions(folder_, fs::perms::owner_all);
    fs::remove_all(folder_);
  }

  std::string path(const char* name = "costs.json") const { return (folder_ / name).string(); }
  std::string write(const std::string& text, const char* name = "costs.json") const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  double item_cost() const { return backend_->cost_model({1, 1, 64, 64, 32, 8, DType::kBF16}, 1).item; }

  // The file is ignored: built-in costs, and one line that names the file, the reason and the remedy.
  void expect_ignored(const std::string& file, const std::string& reason) {
    log_.str("");
    const double before = item_cost();
    EXPECT_EQ(use_costs(file, *backend_), "built in") << reason;
    EXPECT_EQ(item_cost(), before);
    const std::string line = log_.str();
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
    for (const std::string& part : {file, reason, std::string("headwater tune")}) {
      EXPECT_NE(line.find(part), std::string::npos) << line << "does not say " << part;
    }
  }

  fs::path folder_;
  std::unique_ptr<ops::Backend> backend_;
  CostsFile file_;
  std::ostringstream log_;
  std::shared_ptr<spdlog::sinks::ostream_sink_mt> sink_ = std::make_shared<spdlog::sinks::ostream_sink_mt>(log_);
};

TEST_F(CostsFiles, AFileThatFitsIsUsed) {
  file_.targets["scalar"]["bf16.item"] = 1234.5;
  ASSERT_TRUE(write_costs(path("new/folder/costs.json"), file_));
  const auto read = read_costs(path("new/folder/costs.json"));
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->version, file_.version);
  EXPECT_EQ(read->date, file_.date);
  EXPECT_EQ(read->device, file_.device);
  EXPECT_EQ(read->workers, 1u);
  for (const auto& [name, ns] : file_.targets["scalar"]) EXPECT_NEAR(read->targets.at("scalar").at(name), ns, 1e-3);
  EXPECT_EQ(use_costs(path("new/folder/costs.json"), *backend_),
            "from " + path("new/folder/costs.json") + ", 2026-11-30");
  EXPECT_EQ(item_cost(), 1234.5);
  EXPECT_EQ(log_.str(), "");
}

TEST_F(CostsFiles, NoneAndAnAbsentDefaultAreSilent) {
  EXPECT_EQ(use_costs("none", *backend_), "built in");
  setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(default_costs_path(), path("headwater/costs.json"));
  EXPECT_EQ(use_costs("auto", *backend_), "built in");
  ASSERT_TRUE(write_costs(default_costs_path(), file_));
  EXPECT_EQ(use_costs("auto", *backend_), "from " + default_costs_path() + ", 2026-11-30");
  setenv("XDG_CACHE_HOME", "relative", 1);
  EXPECT_NE(default_costs_path().substr(0, 8), "relative");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(log_.str(), "");
}

TEST_F(CostsFiles, WhatWasMeasuredElsewhereIsIgnored) {
  const CostsFile good = file_;
  const auto with = [&](auto change) {
    CostsFile other = good;
    change(other);
    return write(costs_json(other));
  };
  expect_ignored(with([](CostsFile& f) { f.device = "AuthenticAMD family 25 model 1 stepping 1"; }),
                 "processor is AuthenticAMD family 25");
  expect_ignored(with([](CostsFile& f) { f.version += 1; }), "costs version");
  expect_ignored(with([](CostsFile& f) { f.workers = 64; }), "number of threads is 64");
  expect_ignored(with([](CostsFile& f) { f.backend = "cuda"; }), "back end is cuda");
  expect_ignored(with([](CostsFile& f) { f.targets = {{"avx2", f.targets["scalar"]}}; }), "target scalar");
  expect_ignored(with([](CostsFile& f) { f.targets["scalar"].erase("f32.pass"); }), "f32.pass is missing");
  expect_ignored(with([](CostsFile& f) { f.targets["scalar"]["f32.pass"] = -1; }), "f32.pass is -1");
  expect_ignored(with([](CostsFile& f) { f.targets["scalar"]["f32.pass"] = 1e300; }), "f32.pass is 1e+300");
}

TEST_F(CostsFiles, ADamagedFileIsIgnored) {
  const std::string good = costs_json(file_);
  const auto replaced = [&](const std::string& part, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(part);
    EXPECT_NE(at, std::string::npos) << part;
    return write(text.replace(at, part.size(), by));
  };
  for (const double share : {0.0, 0.1, 0.5, 0.9, 0.99}) {
    expect_ignored(write(good.substr(0, static_cast<size_t>(share * static_cast<double>(good.size())))),
                   "not a JSON object");
  }
  expect_ignored(write("[1, 2]"), "not a JSON object");
  expect_ignored(write("null"), "not a JSON object");
  expect_ignored(write(std::string(100'000, '[')), "not a JSON object");
  expect_ignored(write("{}"), "\"version\"");
  expect_ignored(write(std::string(2u << 20, ' ')), "larger than");
  expect_ignored(write(std::string(100, '\0')), "not a JSON object");
  expect_ignored(replaced("\"workers\": 1", "\"workers\": -1"), "\"workers\"");
  expect_ignored(replaced("\"workers\": 1", "\"workers\": 1e99"), "\"workers\"");
  expect_ignored(replaced("\"date\": \"", "\"date\": \"\\u001b[2J"), "\"date\"");
  expect_ignored(replaced("\"targets\": {", "\"targets\": 3, \"others\": {"), "\"targets\"");
  expect_ignored(replaced("\"bf16.item\": ", "\"bf16.item\": NaN, \"x\": "), "not a JSON object");
  expect_ignored(replaced("\"bf16.item\": ", "\"bf16.item\": \"1\", \"x\": "), "not a number");
  expect_ignored(replaced("\"bf16.item\": ", "\"bf16.item\": 1e999, \"x\": "), "");
}

TEST_F(CostsFiles, WhatIsNoReadableFileIsIgnored) {
  expect_ignored(path("absent.json"), "no such file");
  expect_ignored(folder_.string(), "not a regular file");
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  expect_ignored(path("fifo"), "not a regular file");
  if (geteuid() == 0) return;  // nothing is unreadable to the superuser
  const std::string file = write(costs_json(file_));
  fs::permissions(file, fs::perms::none);
  expect_ignored(file, "not readable");
}

TEST_F(CostsFiles, AnOutputThatCannotBeWrittenIsAnErrorThatLeavesNothing) {
  write("", "file");
  const Status status = write_costs(path("file/costs.json"), file_);
  EXPECT_NE(status.message().find("--output"), std::string::npos) << status.message();
  ASSERT_TRUE(write_costs(path(), file_));
  size_t files = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 2u);
}

TEST_F(CostsFiles, WhatIsNoFileIsNotReplacedAndALinkIsFollowed) {
  ASSERT_EQ(mkfifo(path("fifo").c_str(), 0600), 0);
  for (const Status& status : {check_costs_place(path("fifo")), write_costs(path("fifo"), file_)}) {
    EXPECT_EQ(status.code(), ErrorCode::kInvalidArgument);
    EXPECT_NE(status.message().find("is not replaced"), std::string::npos) << status.message();
  }
  EXPECT_TRUE(fs::is_fifo(path("fifo")));
  fs::create_symlink("real.json", path("link.json"));
  ASSERT_TRUE(check_costs_place(path("link.json")));
  ASSERT_TRUE(write_costs(path("link.json"), file_));
  EXPECT_TRUE(fs::is_symlink(path("link.json")));
  EXPECT_TRUE(read_costs(path("real.json")));
}

TEST_F(CostsFiles, ABackEndWithoutCostsTakesNoFile) {
  const auto reference = backend::create_backend("reference", {1, ""}).value();
  ASSERT_TRUE(write_costs(path(), file_));
  EXPECT_EQ(use_costs(path(), *reference), "built in");
  EXPECT_EQ(reference->measure_costs(0).status().code(), ErrorCode::kUnsupported);
  EXPECT_EQ(log_.str(), "");
}

}  // namespace
}  // namespace headwater::apps
