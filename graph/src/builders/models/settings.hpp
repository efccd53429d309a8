#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/budget.hpp"
#include "config_checks.hpp"
#include "module_run.hpp"

namespace perfmodel {

// A configuration as names of a model's text, and back. For each kind of configuration there is
// `visit_settings(config, visit)`, which calls visit(name, member) or, for an enumeration,
// visit(name, member, words).

using Words = std::vector<std::string_view>;

inline Item item_of(const std::vector<std::int64_t>& sizes) { return sizes; }
template <class Number>
requires std::is_arithmetic_v<Number> Item item_of(Number number) { return number; }

inline void take_item(const Item& item, std::int64_t& member) {
  member = *item.get<std::int64_t>();
}
inline void take_item(const Item& item, double& member) { member = item.real(); }
inline void take_item(const Item& item, bool& member) { member = *item.get<bool>(); }
inline void take_item(const Item& item, std::vector<std::int64_t>& member) {
  member.clear();
  for (const Item& size : item.list()) member.push_back(*size.get<std::int64_t>());
}

template <class Config>
Item::Record settings_of(Config config) {
  Item::Record names;
  visit_settings(config, [&](std::string_view name, const auto& member, const Words& words = {}) {
    if constexpr (std::is_enum_v<std::decay_t<decltype(member)>>) {
      names.emplace_back(name, std::string(words.at(static_cast<std::size_t>(member))));
    } else {
      names.emplace_back(name, item_of(member));
    }
  });
  return names;
}

template <class Config>
void take_settings(Config& config, const ModuleRun& run) {
  visit_settings(config, [&](std::string_view name, auto& member, const Words& words = {}) {
    const Item* value = run.get(name);
    if (!value) return;
    if constexpr (std::is_enum_v<std::decay_t<decltype(member)>>) {
      const auto word = std::ranges::find(words, *value->get<std::string>());
      member = static_cast<std::decay_t<decltype(member)>>(word - words.begin());
    } else {
      take_item(*value, member);
    }
  });
}

/// `defaults` with what `MODEL.preset.NAME` sets. Errors: an unknown name; `expected` is "a BERT
/// preset".
template <class Config>
Result<Config> preset_of(std::string_view model, std::string_view expected, std::string_view name,
                         Config defaults = {}) {
  const std::string prefix = std::string(model) + ".preset.";
  const std::string function = prefix + std::string(name);
  if (!module_definitions().find(function)) {
    return unknown_preset(expected, name, module_definitions().with_prefix(prefix));
  }
  ModuleRun run({}, {});
  run.follow(function);
  take_settings(defaults, run);
  defaults.name = name;
  return defaults;
}

/// The step of a model. Errors: what `MODEL.check` refuses; the limit of nodes.
template <class Config>
Result<ExecutionGraph> build_module(
    std::string_view model, const Config& config, const TrainingOptions& options,
    std::optional<TrainingOptions::Optimizer> sparse_optimizer = {}) {
  ModuleRun run(settings_of(config), options, sparse_optimizer);
  return within_budget([&]() -> Result<ExecutionGraph> {
    try {
      run.follow(std::string(model) + ".check");
    } catch (const Refusal& refusal) {
      return bad_config(refusal.message);
    }
    return run.step_of(model);
  });
}
template <class Config>
Result<ExecutionGraph> build_module(std::string_view model, const Config& config) {
  return build_module(model, config, config.training);
}

}  // namespace perfmodel
