#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A detector like Faster R-CNN (Ren et al., 2015) with torchvision's ops: ResNet-50 without its
/// head, a region proposal network on its last stage, RoI align, two linear layers of width
/// `hidden`, a class and a box per region.
///
/// What depends on data in the real model is given by numbers, and some bookkeeping is left out:
/// - `kept` regions per image behind the suppression, `sampled` regions per image in the loss,
///   `sampled_anchors` anchors per image in the loss of the proposals;
/// - targets and the matching of boxes come with the batch as inputs;
/// - one feature map (no pyramid), images of one size, batch norm that learns.
struct FasterRcnnConfig {
  std::string name = "faster_rcnn";
  std::int64_t batch = 2;
  std::int64_t resolution = 800;   ///< of the square image, three colours
  std::int64_t classes = 91;       ///< background included
  std::int64_t anchors = 15;       ///< per place of the feature map
  std::int64_t candidates = 2000;  ///< best proposals per image that go into the suppression
  std::int64_t kept = 1000;        ///< of these
  std::int64_t sampled = 512;      ///< regions per image
  std::int64_t sampled_anchors = 256;
  std::int64_t hidden = 1024;
  TrainingOptions training;
};

/// "faster_rcnn".
Result<FasterRcnnConfig> faster_rcnn_preset(std::string_view name);

/// One training step on a GPU. Errors: a CPU, sizes that are not positive, more regions kept than
/// candidates or candidates than anchors, 2^60 elements or more.
Result<ExecutionGraph> build_faster_rcnn(const FasterRcnnConfig& config);

}  // namespace perfmodel
