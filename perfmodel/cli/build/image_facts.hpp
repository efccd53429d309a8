#pragma once

#include <fmt/format.h>

#include "build_arguments.hpp"

namespace perfmodel::cli {

/// Of a network over square images. `Config` has the members `name`, `batch` and `resolution`.
template <class Config>
ModelFacts image_facts(const Config& config) {
  ModelFacts facts;
  facts.model = config.name;
  facts.lines = {{"batch", fmt::format("{} images of {} x {}", config.batch, config.resolution,
                                       config.resolution)}};
  facts.keys = {{"batch", config.batch}, {"resolution", config.resolution}};
  return facts;
}

}  // namespace perfmodel::cli
