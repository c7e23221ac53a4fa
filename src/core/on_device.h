// Marks a function that nvcc compiles for the host and the device; other compilers see an ordinary one.
#pragma once

#ifdef __CUDACC__
#define HEADWATER_ON_DEVICE __host__ __device__
#else
#define HEADWATER_ON_DEVICE
#endif
