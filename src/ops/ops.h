// Door of the room: the contracts of device work.
#pragma once

#include "ops/backend.h"
