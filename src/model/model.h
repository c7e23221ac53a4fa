// Door of the room: model files, weights and the forward pass.
#pragma once

#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/families/random_weights.h"
#include "model/gguf.h"
