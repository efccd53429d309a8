#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/named_values.hpp"

namespace perfmodel {

/// A member whose values have names, or something else that a name chooses.
template <class Config>
struct ConfigChoice {
  std::vector<std::string_view> names;
  void (*choose)(Config& config, std::string_view name);
};

/// A member of a config, or a function that returns a member of one of its parts.
template <class Config>
using ConfigMember =
    std::variant<std::int64_t Config::*, double Config::*, bool Config::*, std::string Config::*,
                 std::vector<std::int64_t> Config::*, std::int64_t& (*)(Config&),
                 double& (*)(Config&), bool& (*)(Config&), ConfigChoice<Config>>;

/// A field of the config of a model or of the step around it, written once.
template <class Config>
struct ConfigField {
  std::string_view name;
  ConfigMember<Config> member;
  std::string_view help;
  std::string_view takes = {};  ///< shown for a value in the help; empty: its type
  bool deniable = false;        ///< there is a flag --no-... too
  std::string_view shown = {};  ///< the default that the help shows
};

template <class Config, class Value>
Config owner_of(Value Config::*);
template <auto kMember>
using OwnerOf = decltype(owner_of(kMember));

/// The member of a part of a config.
template <auto kPart, auto kMember>
inline constexpr auto kMemberOfPart = +[](OwnerOf<kPart>& config) -> auto& {
  return config.*kPart.*kMember;
};

/// The names are shown in alphabetical order.
template <auto kMember, const auto& kValues>
ConfigChoice<OwnerOf<kMember>> choice_of() {
  auto names = names_of(kValues);
  std::ranges::sort(names);
  return {std::move(names), [](OwnerOf<kMember>& config, std::string_view name) {
            config.*kMember = *find_named(kValues, name);
          }};
}

}  // namespace perfmodel
