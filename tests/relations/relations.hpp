#pragma once

#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

/// Relations between answers that always hold, checked on random questions.
namespace perfmodel::relations {

/// PERFMODEL_RELATIONS multiplies the number of questions, for a night.
inline std::size_t effort() {
  const char* asked = std::getenv("PERFMODEL_RELATIONS");
  return asked ? std::stoul(asked) : 1;
}

inline std::filesystem::path data() { return std::filesystem::path(PERFMODEL_SOURCE_DIR) / "data"; }

/// Boards of all architectures that people train on, with rows of their own and without.
inline const std::vector<std::string>& boards() {
  static const std::vector<std::string> names = {
      "v100-sxm2-32gb", "t4",    "a100-sxm-40gb", "rtx-3090",
      "rtx-4090",       "l40s",  "h100-sxm-80gb", "h200-sxm-141gb",
      "b200-sxm-180gb", "mi250", "mi300x"};
  return names;
}

class Random {
 public:
  explicit Random(std::uint64_t seed) : random_(seed) {}
  std::size_t below(std::size_t count) {
    return std::uniform_int_distribution<std::size_t>(0, count - 1)(random_);
  }
  template <class Value>
  const Value& of(const std::vector<Value>& values) {
    return values[below(values.size())];
  }
  std::mt19937_64& bits() { return random_; }

 private:
  std::mt19937_64 random_;
};

}  // namespace perfmodel::relations
