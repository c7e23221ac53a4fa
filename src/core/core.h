// Door of the room: the vocabulary every other room speaks.
#pragma once

#include "core/buffer.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/dtype.h"
#include "core/ids.h"
#include "core/quantize.h"
#include "core/random.h"
#include "core/result.h"
#include "core/system.h"
