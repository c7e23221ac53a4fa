// Boost.JSON is header-only unless one unit compiles it.
#include <boost/json/src.hpp>
