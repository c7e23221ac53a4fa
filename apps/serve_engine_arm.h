// The engine without a server as an arm of the serving bench: what it can do is what a server can lose.
#pragma once

#include "apps/runtime.h"
#include "bench/serve/arm.h"

namespace headwater::apps {

class ServeEngineArm final : public bench::serve::Arm {
 public:
  static Result<std::unique_ptr<ServeEngineArm>> create(const RuntimeOptions& runtime, const EngineOptions& engine);

  const std::string& name() const override { return name_; }
  // Closed loops of prompts made of token ids, in this process and on this thread.
  Result<bench::serve::LevelResult> run(const bench::serve::WorkloadShape& workload,
                                        const std::vector<bench::serve::Prompt>& prompts,
                                        const bench::serve::LoadShape& load,
                                        const bench::serve::Progress& progress) override;
  Result<std::optional<bench::serve::Exposition>> counters() override;  // as a server's /metrics would show them

 private:
  ServeEngineArm() = default;

  std::string name_ = "engine";
  Runtime runtime_;
  EngineHandle handle_;
};

}  // namespace headwater::apps
