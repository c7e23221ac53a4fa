// Door of the room: what the engine reports about itself. A leaf: usable from every room above core.
#pragma once

#include "observe/log.h"
#include "observe/metrics.h"
