// mix_experts token by token and expert by expert, in the order of its sum.
#pragma once

#include <vector>

#include "backend/reference/operations.h"
#include "ops/experts.h"

namespace headwater::backend::reference {

class Experts {
 public:
  explicit Experts(Matmul& matmul) : matmul_(matmul) {}
  void run(const ops::MixExpertsParams& params);

 private:
  void run_token(const ops::MixExpertsParams& params, uint32_t token);

  Matmul& matmul_;
  std::vector<ops::ExpertChoice> chosen_;
  std::vector<float> gate_, up_, down_;  // [n], [n], [k] of one expert
  std::vector<double> sums_;             // [k]
};

}  // namespace headwater::backend::reference
