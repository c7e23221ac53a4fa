// Boost.Asio with BOOST_ASIO_SEPARATE_COMPILATION is compiled here, once.
#include <boost/asio/impl/src.hpp>
#include <boost/asio/ssl/impl/src.hpp>
