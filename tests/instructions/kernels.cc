// Runs one kernel once at a fixed shape, for an instruction counter: kernels NAME, or no argument for the names.
//
// Counted is what measured_region() does. One thread, so the counts repeat exactly; target avx2, the widest that
// valgrind knows.
#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <vector>

#include "backend/cpu/attention_test_kit.h"
#include "backend/cpu/dense_test_kit.h"
#include "backend/cpu/products.h"
#include "ops/sampling.h"

extern "C" __attribute__((noinline)) void measured_region(const std::function<void()>& work) {
  work();
  asm volatile("" ::: "memory");
}

namespace headwater::backend::cpu {
namespace {

constexpr Target kTarget = Target::kAvx2;

void measure(const std::function<void()>& work) {
  work();  // scratch is grown, symbols are bound
  measured_region(work);
}

void product(DType dtype, uint32_t rows) {
  constexpr uint32_t kFeatures = 64, kColumns = 576;
  const auto pool = std::move(ThreadPool::create(1)).value();
  const FileWeight file(dtype, kFeatures, kColumns, 1);
  const auto weight = std::move(pack(file.view, *pool)).value();
  Products products(step_kernels(kTarget), *pool);
  check(products.reserve(rows, kColumns).is_ok(), "memory for activations");
  std::vector<float> x = random_values(rows * kColumns, 2), out(rows * kFeatures);
  const ops::Product product{weight.get(), {out.data(), rows, kFeatures, kFeatures}};
  measure([&] { products.run({{x.data(), rows, kColumns, kColumns}, {&product, 1}}); });
}

// Four sequences behind 512 common keys, 40 of their own.
void attention(bool shared) {
  AttentionKit kit(kTarget, {}, std::vector<KitSequence>(4, {552}), 512);
  kit.plan(shared ? kit.shared() : kit.flat());
  measure([&] { kit.run(); });
}

void rowwise(const std::function<void(const StepKernels&, float* values, const float* weight)>& work) {
  std::vector<float> values = random_values(1536, 3);
  const std::vector<float> weight = random_values(1536, 4);
  measure([&] { work(step_kernels(kTarget), values.data(), weight.data()); });
}

void sample(const ops::SampleRow& row) {
  constexpr uint32_t kVocabulary = 49152;
  const std::vector<float> logits = random_values(kVocabulary, 5);
  auto scratch = std::move(ops::SampleScratch::create(kVocabulary)).value();
  measure([&] { check(ops::sample_row(logits, row, scratch).is_ok(), "a token"); });
}

struct Kernel {
  const char* name;
  std::function<void()> run;
};

const Kernel kKernels[] = {
    {"product_q4_0_1_row", [] { product(DType::kQ4_0, 1); }},
    {"product_q4_1_1_row", [] { product(DType::kQ4_1, 1); }},
    {"product_q8_0_1_row", [] { product(DType::kQ8_0, 1); }},
    {"product_q4_1_32_rows", [] { product(DType::kQ4_1, 32); }},
    {"product_q8_0_32_rows", [] { product(DType::kQ8_0, 32); }},
    {"product_bf16_32_rows", [] { product(DType::kBF16, 32); }},
    {"attention_flat", [] { attention(false); }},
    {"attention_shared", [] { attention(true); }},
    {"add_norm",
     [] {
       rowwise([](const StepKernels& kernels, float* values, const float* weight) {
         kernels.add_norm({values, weight, nullptr, 1.0f, weight, 1e-5f, 576, values + 576});
       });
     }},
    {"silu_mul",
     [] {
       rowwise([](const StepKernels& kernels, float* values, const float* weight) {
         kernels.silu_mul(values, weight, 1536, values);
       });
     }},
    {"sample_greedy", [] { sample({.temperature = 0}); }},
    {"sample_top_k", [] { sample({.top_k = 50, .seed = 1}); }},
    {"sample_top_p", [] { sample({.top_p = 0.9f, .seed = 1}); }},
};

}  // namespace
}  // namespace headwater::backend::cpu

int main(int argc, char** argv) {
  using namespace headwater::backend::cpu;
  if (argc < 2) {
    for (const Kernel& kernel : kKernels) fmt::print("{}\n", kernel.name);
    return 0;
  }
  const auto* kernel =
      std::ranges::find_if(kKernels, [&](const Kernel& k) { return std::string_view(argv[1]) == k.name; });
  if (kernel == std::end(kKernels)) {
    fmt::print(stderr, "unknown kernel '{}'; run without arguments for the names\n", argv[1]);
    return 1;
  }
  kernel->run();
}
