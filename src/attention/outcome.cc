// Names of the plan's closed lists.
#include "attention/plan.h"

namespace headwater::attention {

Result<Sharing> parse_sharing(std::string_view text) {
  for (std::string_view name : {"auto", "1", "true", "yes", "on"}) {
    if (text == name) return Sharing::kAuto;
  }
  for (std::string_view name : {"off", "0", "false", "no"}) {
    if (text == name) return Sharing::kOff;
  }
  if (text == "always") return Sharing::kAlways;
  return error(
      ErrorCode::kInvalidArgument,
      "shared prefix setting \"{}\" is not known; use auto, off or always (1, true, yes, on and 0, false, no are "
      "spellings of auto and off)",
      text);
}

const char* to_string(Sharing sharing) {
  switch (sharing) {
    case Sharing::kAuto:
      return "auto";
    case Sharing::kOff:
      return "off";
    case Sharing::kAlways:
      return "always";
  }
  return "?";
}

const char* to_string(Path path) {
  switch (path) {
    case Path::kFlat:
      return "flat";
    case Path::kShared:
      return "shared";
    case Path::kMixed:
      return "mixed";
  }
  return "?";
}

const char* to_string(NotShared reason) {
  switch (reason) {
    case NotShared::kOff:
      return "off";
    case NotShared::kNothingShared:
      return "nothing_shared";
    case NotShared::kOneMember:
      return "one_member";
    case NotShared::kBelowCost:
      return "below_cost";
    case NotShared::kBelowMinimum:
      return "below_minimum";
    case NotShared::kLastPage:
      return "last_page";
    case NotShared::kUncomputed:
      return "uncomputed";
    case NotShared::kWindow:
      return "window";
    case NotShared::kPartialCut:
      return "partial_cut";
    case NotShared::kPlanCapacity:
      return "plan_capacity";
    case NotShared::kFailed:
      return "failed";
  }
  return "?";
}

NotShared Outcome::reason() const {
  constexpr NotShared kMostTellingFirst[kNotSharedKinds] = {
      NotShared::kFailed,     NotShared::kPlanCapacity, NotShared::kOff,          NotShared::kBelowCost,
      NotShared::kPartialCut, NotShared::kBelowMinimum, NotShared::kOneMember,    NotShared::kLastPage,
      NotShared::kUncomputed, NotShared::kWindow,       NotShared::kNothingShared};
  for (NotShared reason : kMostTellingFirst) {
    if (not_shared[static_cast<size_t>(reason)] > 0) return reason;
  }
  return NotShared::kNothingShared;
}

}  // namespace headwater::attention
