#pragma once

#include <algorithm>
#include <cstddef>
#include <string>

#include "answers.hpp"

namespace perfmodel::serve {

/// Bytes of the line with which a client of TCP begins.
inline constexpr std::size_t kLongestLogin = 4096;

/// That line: {"op": "login", "token": ..}. An empty token is none.
struct Login {
  std::string id = "null", token = {};
};

inline Login read_login(const std::string& line) {
  const Json json = Json::parse(line, nullptr, false);
  Login found;
  if (!json.is_object()) return found;
  if (json.contains("id") && (json["id"].is_string() || json["id"].is_number_integer())) {
    found.id = json_line(json["id"]);
  }
  if (json.value("op", Json()) == "login" && json.value("token", Json()).is_string()) {
    found.token = json["token"];
  }
  return found;
}

/// Compares in a time that does not tell where the texts differ.
inline bool equal_in_equal_time(const std::string& one, const std::string& other) {
  unsigned difference = one.size() != other.size() || other.empty();
  for (std::size_t i = 0; i < one.size(); ++i) {
    difference |=
        static_cast<unsigned char>(one[i] ^ other[i % std::max<std::size_t>(1, other.size())]);
  }
  return difference == 0;
}

}  // namespace perfmodel::serve
