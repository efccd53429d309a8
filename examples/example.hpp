#pragma once

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "perfmodel/result.hpp"

/// The value, or the end of the program with the error on stderr. Enough for an example; a program
/// that lives longer looks at `error()` and goes on.
template <class T>
T or_exit(perfmodel::Result<T> result) {
  if (!result) {
    std::fprintf(stderr, "%s\n", to_string(result.error()).c_str());
    std::exit(1);
  }
  return std::move(*result);
}
