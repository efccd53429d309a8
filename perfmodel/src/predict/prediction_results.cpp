#include "prediction_results.hpp"
#include "base/each_name.hpp"
#include "perfmodel/detail/overhead_table.hpp"

namespace perfmodel {
namespace {

OrderedNumbers overheads_us(const Prediction& prediction) {
  OrderedNumbers terms;
  for (const HostTerm& host : kHostTerms) {
    terms[std::string(host.key)] = prediction.terms_us[static_cast<std::size_t>(host.term)];
  }
  return terms;
}

std::optional<double> power_w(const Prediction& prediction) {
  return prediction.energy_j ? std::optional(prediction.power_w().value_or(0)) : std::nullopt;
}

auto of_price(auto member) {
  return [member](const PredictedKernel& kernel) { return std::invoke(member, kernel.price); };
}
auto price_us(Microseconds Price::*time) {
  return [time](const PredictedKernel& kernel) { return (kernel.price.*time).count(); };
}

const ResultFields<Prediction::Phase> kPhaseFields = {
    PERFMODEL_FIELDS(Prediction::Phase, label, host_us, wait_us),
};
const ResultFields<Prediction::Iteration> kIterationFields = {
    PERFMODEL_FIELDS(Prediction::Iteration, name, e2e_us, gpu_active_us),
};
const ResultFields<Prediction::OnHost> kOnHostFields = {
    {"scale", &Prediction::OnHost::scale, Digits::kAll},
    {"e2e_us", &Prediction::OnHost::e2e_us},
};

}  // namespace

const ResultFields<Prediction> kStepFields = {
    PERFMODEL_FIELDS(Prediction, e2e_us, e2e_low_us, e2e_high_us, energy_j),
    {"power_w", power_w, Digits::kThreeDecimals},
    {"limited_us", &Prediction::limited_us},
    {"iterations", [](const auto& made) { return json_list(made.iterations, kIterationFields); }},
    PERFMODEL_FIELDS(Prediction, gpu_active_us, gpu_idle_us, cpu_us, wait_us, kernel_sum_us,
                     compute_kernel_us, comm_kernel_us),
    {"overheads_us", overheads_us},
    {"host_sensitivity",
     [](const auto& made) { return json_list(made.host_sensitivity, kOnHostFields); }},
    {"phases", [](const auto& made) { return json_list(made.phases, kPhaseFields); }},
};

const ResultFields<PredictedKernel> kPredictedKernelFields = {
    PERFMODEL_FIELDS(PredictedKernel, name, family, stream, start_us),
    {"time_us", price_us(&Price::time)},
    {"waiting_us", &PredictedKernel::waiting_us},
    {"model", of_price(&Price::model)},
    {"bound", of_price(&Price::bound)},
    {"in_range", of_price(&Price::in_range)},
    PERFMODEL_FIELDS(PredictedKernel, inferred, limited_us, beside_us),
    {"energy_j", [](const PredictedKernel& kernel) { return kernel.energy.sum_j(); }},
    {"low_us", price_us(&Price::low)},
    {"high_us", price_us(&Price::high)},
};

const ResultFields<Prediction::ParallelCosts> kParallelCostsFields = {
    PERFMODEL_FIELDS(Prediction::ParallelCosts, copies_us, beside_us, slowest_us),
};

const ResultFields<Prediction> kJobFields = {
    {"gpus", &Prediction::ranks},
    {"batch_per_gpu", &Prediction::batch},
    {"samples_per_s", &Prediction::samples_per_s, Digits::kThreeDecimals},
    {"samples_per_s_per_gpu", &Prediction::samples_per_s_per_gpu, Digits::kThreeDecimals},
};

}  // namespace perfmodel
