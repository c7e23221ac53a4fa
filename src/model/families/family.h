// What a model family provides: one folder, one row in families.cc.
#pragma once

#include <span>
#include <string_view>

#include "model/transformer/blueprint.h"

namespace headwater::model {

struct Family {
  std::string_view name;
  std::string_view gguf;    // general.architecture
  std::string_view folder;  // model_type of config.json; several are separated by blanks
  // The file's numbers as a blueprint. Errors stay in `h`: what is returned then is not used.
  Blueprint (*read)(Hyperparameters& h);
  std::string_view gguf_key = {};  // of GGUF files only those that have this key behind the architecture
};

std::span<const Family> families();

// By the family that the file names: kUnsupported lists the known ones, or names what the family does not compute.
Result<Blueprint> read_blueprint(Hyperparameters& h);

}  // namespace headwater::model
