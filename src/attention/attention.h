// Door of the room: what a step attends, and how it is cut.
#pragma once

#include "attention/plan.h"
