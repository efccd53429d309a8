#include "layout_json.hpp"

#include <string>

namespace perfmodel {

using OrderedJson = nlohmann::ordered_json;

OrderedJson layout_json(const RankedLayout& ranked,
                        const std::function<OrderedJson(double)>& number) {
  constexpr double kDecimalGigabyte = 1e9;
  const ParallelLayout& layout = ranked.layout;
  const LayoutPrediction& made = ranked.prediction;
  const auto gigabytes = [&](double bytes) { return number(bytes / kDecimalGigabyte); };
  OrderedJson terms = OrderedJson::object();
  for (std::size_t i = 0; i < kLayoutTerms; ++i) {
    terms[std::string(to_string(static_cast<LayoutTerm>(i)))] = number(made.terms_ms[i]);
  }
  return {{"dp", layout.dp},
          {"tp", layout.tp},
          {"pp", layout.pp},
          {"vp", layout.vp},
          {"cp", layout.cp},
          {"ep", layout.ep},
          {"zero", to_string(layout.zero)},
          {"micro_batch", layout.micro_batch},
          {"recompute", to_string(layout.recompute)},
          {"sequence_parallel", layout.sequence_parallel},
          {"schedule", to_string(layout.order)},
          {"predicted_step_ms", number(made.step_ms)},
          {"low_ms", number(made.low_ms)},
          {"high_ms", number(made.high_ms)},
          {"tokens_per_s_per_gpu", number(made.tokens_per_s_per_gpu)},
          {"mfu", number(made.mfu)},
          {"hfu", number(made.hfu)},
          {"memory_gb", gigabytes(made.reserved_bytes)},
          {"allocated_gb", gigabytes(made.allocated_bytes)},
          {"weights_gb", gigabytes(made.weight_bytes)},
          {"gradients_gb", gigabytes(made.gradient_bytes)},
          {"optimizer_gb", gigabytes(made.optimizer_bytes)},
          {"activations_gb", gigabytes(made.activation_bytes)},
          {"device_gb", gigabytes(made.device_bytes)},
          {"fits", made.fits},
          {"bubble_share", number(made.bubble_share)},
          {"exposed_comm_share", number(made.exposed_comm_share)},
          {"limit", to_string(made.limit)},
          {"stage_layers", made.stage_layers},
          {"terms_ms", std::move(terms)},
          {"etp", layout.etp},
          {"context", to_string(layout.context)}};
}

}  // namespace perfmodel
