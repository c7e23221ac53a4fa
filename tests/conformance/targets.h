// The rows of the conformance suite: every back end of the registry; the cpu back end once for each of its targets, the
// cuda back end with and without the promise of the same bits.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "backend/registry/registry.h"
#include "support/compare.h"

namespace headwater::testing {

struct Target {
  std::string backend;
  std::string cpu_target = {};
  bool invariant = false;

  std::string name() const {
    return backend + (cpu_target.empty() ? "" : "_" + cpu_target) + (invariant ? "_invariant" : "");
  }
  Result<std::unique_ptr<ops::Backend>> create(uint32_t threads = 2) const {
    return backend::create_backend(backend, {threads, cpu_target, invariant});
  }
};

inline void PrintTo(const Target& target, std::ostream* out) {
  *out << target.name();
}

// What the registry lists, whether or not it runs here.
inline std::vector<Target> listed_targets() {
  std::vector<Target> targets;
  for (const backend::BackendRow& row : backend::backends()) {
    if (row.name == "cpu") {
      for (const char* target : {"scalar", "avx2", "avx512", "avx512_bf16", "avx512_amx"})
        targets.push_back({.backend = "cpu", .cpu_target = target});
    } else {
      targets.push_back({.backend = std::string(row.name)});
      if (row.name == "cuda") targets.push_back({.backend = "cuda", .invariant = true});
    }
  }
  return targets;
}

// Left out only where create() says that this machine or build lacks what the target needs. Another error keeps the
// row, and its tests fail. Targets.TheReferenceAndACpuTargetRunHere fails when no cpu target is left.
inline std::vector<Target> all_targets() {
  std::vector<Target> targets = listed_targets();
  std::erase_if(targets, [](const Target& target) {
    const Result<std::unique_ptr<ops::Backend>> created = target.create(1);
    return !created && created.status().code() == ErrorCode::kUnsupported;
  });
  return targets;
}

// Held against the reference: all but itself.
inline std::vector<Target> targets_beside_the_reference() {
  std::vector<Target> targets = all_targets();
  std::erase_if(targets, [](const Target& target) { return target.backend == "reference"; });
  return targets;
}

inline std::string target_name(const ::testing::TestParamInfo<Target>& info) {
  return info.param.name();
}

class TargetTest : public ::testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    Result<std::unique_ptr<ops::Backend>> created = GetParam().create();
    ASSERT_TRUE(created) << created.status().message();
    backend_ = std::move(created).value();
  }
  void TearDown() override {
    if (cases_ == 0 && !left_out_.empty()) GTEST_SKIP() << left_out_;
  }
  bool is_reference() const { return GetParam().backend == "reference"; }
  // A GPU's products read operands, and weights of most types, rounded to BF16: 2^-9 of each number.
  bool rounds_to_bf16(DType weight) const { return GetParam().backend == "cuda" && weight != DType::kF32; }
  Tolerance product_tolerance(DType weight, uint64_t columns) const {
    return rounds_to_bf16(weight) ? Tolerance{0.012, 5e-3, 1 - 1e-4} : tolerance_for(weight, columns);
  }
  // For plans that no planner made: a back end that is not invariant takes plans of one cut.
  uint32_t cut_of(uint32_t cut) const { return backend_->info().invariant ? cut : attention::kNoCut; }

  // Whether the back end has pages of this kind. The case is left out only where it says that it has not; its message is
  // recorded, and a test all of whose cases are left out is skipped.
  bool takes(ops::KvShape shape) {
    shape.pages = 1;
    const Result<std::unique_ptr<ops::KvPool>> pool = backend_->create_kv_pool(shape);
    if (pool || pool.status().code() != ErrorCode::kUnsupported) {
      ++cases_;
      EXPECT_TRUE(pool) << pool.status().message();
      return pool.is_ok();
    }
    left_out_ = pool.status().message();
    RecordProperty("left_out", left_out_);
    return false;
  }

  std::unique_ptr<ops::Backend> backend_;

 private:
  uint32_t cases_ = 0;
  std::string left_out_;  // why, the last time
};

inline std::unique_ptr<ops::Backend> create_reference() {
  Result<std::unique_ptr<ops::Backend>> created = backend::create_backend("reference", {.threads = 1});
  check(created.is_ok(), "the reference back end always works");
  return std::move(created).value();
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr uint32_t kSlowdown = 4;  // fewer cases where a sanitizer makes each one slow
#else
inline constexpr uint32_t kSlowdown = 1;
#endif

}  // namespace headwater::testing
