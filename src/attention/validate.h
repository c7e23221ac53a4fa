// Are the arguments what plan.h says they are? Internal to the room.
#pragma once

#include "attention/plan.h"

namespace headwater::attention {

Status check_page_table(const PageTable& table, const PlanLimits& limits);
Status check_planner(const PlanLimits& limits, const PlanSettings& settings, const CostModel& cost,
                     const DeviceShape& device);

}  // namespace headwater::attention
