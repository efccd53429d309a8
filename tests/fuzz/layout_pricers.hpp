#pragma once

#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/layout.hpp"
#include "perfmodel/predictor.hpp"

namespace perfmodel::fuzz {

inline const Predictor& layout_predictor() {
  static const Predictor made =
      *Predictor::load({.data = data_folder(), .gpus = {"a100-sxm-80gb"}, .models = "heuristic"});
  return made;
}

inline const LayoutPricer& layout_pricer() {
  static const LayoutPricer made =
      *LayoutPricer::make(layout_predictor(), {.gpu = "a100-sxm-80gb", .topology = "dgx-a100"});
  return made;
}

/// A price, or why there is none: terms add up to the step, nothing is below 0.
inline void check_layout(const LayoutPricer& pricer, const LayoutJob& job,
                         const ParallelLayout& layout) {
  const auto made = pricer.predict(job, layout);
  if (!made) return check_error(made.error());
  check_lines(made->warnings);
  double sum = 0;
  for (const double term : made->terms_ms) {
    PERFMODEL_CHECK(std::isfinite(term) && term >= 0);
    sum += term;
  }
  PERFMODEL_CHECK(std::isfinite(made->step_ms) && made->step_ms > 0);
  PERFMODEL_CHECK(std::abs(sum - made->step_ms) <= 1e-6 * made->step_ms);
  PERFMODEL_CHECK(made->low_ms <= made->step_ms && made->step_ms <= made->high_ms);
  PERFMODEL_CHECK(std::isfinite(made->reserved_bytes) && made->allocated_bytes >= 0);
  PERFMODEL_CHECK(made->reserved_bytes >= made->allocated_bytes);
}

}  // namespace perfmodel::fuzz
