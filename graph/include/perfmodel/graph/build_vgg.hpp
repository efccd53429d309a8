#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A network without branches as torchvision has it: convolutions and max pooling, three linear
/// layers with dropout, cross entropy. VGG (Simonyan and Zisserman, 2014) and AlexNet.
struct VggConfig {
  std::string name = "vgg16";
  struct Layer {
    std::int64_t channels = 0;  ///< of a convolution with bias and ReLU; 0: max pooling
    std::int64_t kernel = 3, stride = 1, padding = 1;
  };
  std::vector<Layer> features;
  bool batch_norm = false;
  std::int64_t pooled = 7;  ///< height and width that the linear layers get
  std::int64_t hidden = 4096;
  double dropout = 0.5;
  bool dropout_in_front = false;  ///< of the linear layers, as AlexNet has it; else behind them
  std::int64_t classes = 1000;
  std::int64_t batch = 32;
  std::int64_t resolution = 224;  ///< of the square image, three colours
  TrainingOptions training;
};

/// "vgg11", 13, 16, 19, each also with "_bn", and "alexnet".
Result<VggConfig> vgg_preset(std::string_view name);

/// One training step. Errors: sizes that are not positive, an image of which nothing is left, a
/// dropout outside [0, 1), 2^60 elements or more.
Result<ExecutionGraph> build_vgg(const VggConfig& config);

}  // namespace perfmodel
