// /v1/cache: the page pool, the sequences and the prefixes that they share, as JSON.
#pragma once

#include <optional>
#include <string>

#include "engine/snapshot.h"

namespace headwater::server {

// audit: whether the engine's books agree, where somebody asked.
std::string cache_page(const engine::Snapshot& snapshot, const std::optional<Status>& audit);

}  // namespace headwater::server
