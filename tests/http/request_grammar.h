// Byte streams that are almost HTTP: whole requests from a small grammar, then damaged.
#pragma once

#include <random>
#include <string>

namespace headwater::test {

// One to four requests, each right or wrong in a way a client, a proxy or an attacker might choose, with up to four random
// damages: cut, removed, repeated, inserted or changed bytes.
std::string random_stream(std::mt19937& random);

}  // namespace headwater::test
