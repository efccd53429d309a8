#include "builders/optimizer_names.hpp"
#include "model_family.hpp"

namespace perfmodel {
namespace {

using Training = TrainingOptions;
constexpr Named<Training::Phase> kPhases[] = {{"forward", Training::Phase::kForward},
                                              {"training", Training::Phase::kTraining}};
constexpr Named<Training::Implementation> kOptimizerLoops[] = {
    {"default", Training::Implementation::kDefault},
    {"foreach", Training::Implementation::kForeach},
    {"fused", Training::Implementation::kFused},
    {"loop", Training::Implementation::kLoop}};
constexpr Named<Training::ZeroGrad> kZeroGrads[] = {{"default", Training::ZeroGrad::kDefault},
                                                    {"none", Training::ZeroGrad::kToNone},
                                                    {"zero", Training::ZeroGrad::kToZero}};
constexpr Named<Training::ZeroGradPlace> kZeroGradPlaces[] = {
    {"before-backward", Training::ZeroGradPlace::kBeforeBackward},
    {"before-forward", Training::ZeroGradPlace::kBeforeForward},
    {"before-loss", Training::ZeroGradPlace::kBeforeLoss}};
constexpr Named<Training::Regions> kRegions[] = {
    {"loss-in-backward", Training::Regions::kLossInBackward},
    {"loss-in-forward", Training::Regions::kLossInForward},
    {"off", Training::Regions::kOff}};

void choose_device(Training& training, std::string_view name) {
  if (name == "cpu") training.pytorch.device = {.kind = Device::Kind::kCpu};
}

void choose_version(Training& training, std::string_view version) {
  training.pytorch.major = version.starts_with("1.") ? 1 : 2;
  training.pytorch.minor = version == "1.7" ? 7 : version == "1.13" ? 13 : version == "2.0" ? 0 : 4;
}

}  // namespace

std::span<const ConfigField<TrainingOptions>> training_fields() {
  static const ConfigField<Training> fields[] = {
      {"optimizer", choice_of<&Training::optimizer, kOptimizerNames>(),
       "Optimizer of all parameters"},
      {"phase", choice_of<&Training::phase, kPhases>(),
       "A whole training step, or its forward pass"},
      {"implementation", choice_of<&Training::implementation, kOptimizerLoops>(),
       "How the optimizer walks the parameters: one by one, as lists, in one op; the default of "
       "this PyTorch on this device"},
      {"zero_grad", choice_of<&Training::zero_grad, kZeroGrads>(),
       "Gradients are dropped, or kept and filled with zeros"},
      {"zero_grad_place", choice_of<&Training::zero_grad_place, kZeroGradPlaces>(),
       "Where zero_grad is called"},
      {"regions", choice_of<&Training::regions, kRegions>(),
       "Labels around forward pass, backward pass and optimizer"},
      {"device", ConfigChoice<Training>{{"gpu", "cpu"}, choose_device}, "Where the model computes"},
      {"torch", ConfigChoice<Training>{{"1.7", "1.13", "2.0", "2"}, choose_version},
       "Version of PyTorch whose ops are written"},
      {"pinned_input", &Training::pinned_input, "Whether the batch is in pinned host memory", "",
       true},
      {"resident_input", &Training::resident_input,
       "The batch is on the model's device; nothing is copied"},
      {"mkl", kMemberOfPart<&Training::pytorch, &PyTorch::mkl>,
       "On a CPU: linear algebra by MKL, or by the generic BLAS of other builds", "", true},
  };
  return fields;
}

}  // namespace perfmodel
