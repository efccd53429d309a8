#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace perfmodel::parallel {

/// `cases` of one exact file of the public data; null where the data is not at hand.
inline nlohmann::json public_cases(const std::string& file) {
  const char* folder = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!folder) return {};
  const auto path = std::filesystem::path(folder) / "distributed" / file;
  if (!std::filesystem::exists(path)) return {};
  return nlohmann::json::parse(std::ifstream(path)).at("cases");
}

/// Equal to 1e-6 relative.
inline void expect_same(double value, double expected, const std::string& what) {
  EXPECT_NEAR(value, expected, 1e-6 * std::max(1.0, std::abs(expected))) << what;
}

}  // namespace perfmodel::parallel
