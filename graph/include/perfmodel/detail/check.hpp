#pragma once

#include <cstdio>
#include <cstdlib>

/// Bugs are not errors: a broken invariant aborts with its place.
#define PERFMODEL_CHECK(condition)                                                       \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      std::fprintf(stderr, "%s:%d: check failed: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                      \
    }                                                                                    \
  } while (false)
