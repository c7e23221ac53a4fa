// What a level is run on: a server, or whatever else answers its prompts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/serve/exposition.h"
#include "bench/serve/load.h"
#include "bench/serve/server_process.h"
#include "bench/serve/workload.h"

namespace headwater::bench::serve {

class Arm {
 public:
  virtual ~Arm() = default;
  virtual const std::string& name() const = 0;
  virtual Result<LevelResult> run(const WorkloadShape& workload, const std::vector<Prompt>& prompts,
                                  const LoadShape& load, const Progress& progress) = 0;
  // The counters now; nothing when it has none to show.
  virtual Result<std::optional<Exposition>> counters() = 0;
};

class ServerArm final : public Arm {
 public:
  // model: as the server calls it; "": the first of /v1/models. process: null when it is somebody else's.
  static Result<std::unique_ptr<ServerArm>> create(std::string name, Target target, std::string model,
                                                   std::unique_ptr<ServerProcess> process);

  const std::string& name() const override { return name_; }
  const std::string& model() const { return model_; }
  Result<LevelResult> run(const WorkloadShape& workload, const std::vector<Prompt>& prompts, const LoadShape& load,
                          const Progress& progress) override;
  Result<std::optional<Exposition>> counters() override;

  // How many tokens the server's tokenizer makes of one word of a chat prompt; nothing when it has no /tokenize.
  std::optional<double> tokens_per_word() const;

 private:
  ServerArm(std::string name, Target target, std::unique_ptr<ServerProcess> process)
      : name_(std::move(name)), target_(std::move(target)), process_(std::move(process)) {}

  std::string name_;
  Target target_;
  std::string model_;
  std::unique_ptr<ServerProcess> process_;
};

}  // namespace headwater::bench::serve
