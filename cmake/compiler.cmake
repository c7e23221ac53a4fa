# C++20, warnings as errors, optional sanitizers, ccache where it is installed.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(CCACHE ccache)
if(CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()

add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wshadow;-Wnon-virtual-dtor;-Wno-missing-field-initializers;-Werror>")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports these inside its own library at -O2 (bugs 105329, 105562, 107852).
  add_compile_options(
    "$<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict;-Wno-maybe-uninitialized;-Wno-array-bounds;-Wno-stringop-overflow>")
endif()

if(HEADWATER_SANITIZE)
  # Instrumentation makes GCC warn where the plain build has nothing to warn of (replaced operator new, AVX-512 headers).
  add_compile_options(-Wno-error)
  add_compile_options(-fsanitize=${HEADWATER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all -g1)
  add_link_options(-fsanitize=${HEADWATER_SANITIZE})
endif()
if(HEADWATER_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link)
endif()
