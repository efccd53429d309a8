#pragma once

#include <string_view>
#include <vector>

#include "fields/result_field.hpp"
#include "perfmodel/layout.hpp"

namespace perfmodel {

extern const ResultFields<DecoderModel> kDecoderFields;
/// A layout with its price, as `layouts[]` of documents has it: memory in 1e9 B, shares in 0..1.
extern const ResultFields<ParallelLayout> kParallelLayoutFields;
extern const ResultFields<LayoutPrediction> kLayoutPriceFields;
extern const ResultFields<RankedLayout> kRankedLayoutFields;
/// The columns of a table of measured steps.
extern const ResultFields<MeasuredStep> kMeasuredStepFields;
extern const ResultFields<MeasuredFit> kMeasuredFitFields;

/// The parts of a layout's memory, which add up to what is reserved.
struct LayoutMemoryPart {
  std::string_view key, words;
  double LayoutPrediction::*bytes;
};
inline constexpr LayoutMemoryPart kLayoutMemoryParts[] = {
    {"weights", "weights", &LayoutPrediction::weight_bytes},
    {"gradients", "gradients", &LayoutPrediction::gradient_bytes},
    {"optimizer", "optimizer", &LayoutPrediction::optimizer_bytes},
    {"activations", "activations", &LayoutPrediction::activation_bytes},
    {"logits", "logits", &LayoutPrediction::logit_bytes},
    {"working", "a backward pass", &LayoutPrediction::working_bytes},
    {"gathered", "gathered units", &LayoutPrediction::gathered_bytes},
    {"program", "the program", &LayoutPrediction::program_bytes},
    {"allocator", "the allocator", &LayoutPrediction::allocator_bytes},
};

/// The parts of the host memory of a node.
inline constexpr LayoutMemoryPart kLayoutHostParts[] = {
    {"weights", "weights", &LayoutPrediction::host_weight_bytes},
    {"gradients", "gradients", &LayoutPrediction::host_gradient_bytes},
    {"optimizer", "optimizer", &LayoutPrediction::host_optimizer_bytes},
    {"activations", "activations", &LayoutPrediction::host_activation_bytes},
    {"pinned", "rounding of pinned blocks", &LayoutPrediction::host_pinned_bytes},
};

std::string_view term_words(LayoutTerm term);  ///< "compute", "the host", "tp traffic", ...

/// The largest possible gains, best first: terms of the step that are smaller on other layouts or
/// machines. Shares of the step.
struct LayoutLever {
  std::string_view what;
  double share = 0;
};
std::vector<LayoutLever> layout_levers(const RankedLayout& ranked);

}  // namespace perfmodel
