// Boost.URL is header-only unless one unit compiles it.
#include <boost/url/src.hpp>
