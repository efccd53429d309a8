#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A residual network (He et al., 2015) as torchvision has it: a 7x7 stem, four stages of blocks,
/// mean over the image, one linear layer, cross entropy. Stages have 64, 128, 256 and 512 channels
/// (four times as many behind bottlenecks); all but the first halve the image.
struct ResnetConfig {
  std::string name = "resnet18";
  enum class Block { kBasic, kBottleneck } block = Block::kBasic;
  std::vector<std::int64_t> blocks = {2, 2, 2, 2};  ///< per stage
  /// Of bottlenecks: groups of the 3x3 convolution and their channels in the first stage, 1 and 64
  /// in a plain ResNet (ResNeXt 32 and 4, wide ones 1 and 128).
  std::int64_t groups = 1, width_per_group = 64;
  std::int64_t classes = 1000;
  std::int64_t batch = 32;
  std::int64_t resolution = 224;  ///< of the square image, three colours
  /// Targets are probabilities of all classes [B, classes], as random data of benchmarks is;
  /// otherwise the number of the class.
  bool soft_targets = false;
  TrainingOptions training;
};

/// "resnet18", 34, 50, 101, 152, "resnext50_32x4d", "resnext101_32x8d", "wide_resnet50_2",
/// "wide_resnet101_2".
Result<ResnetConfig> resnet_preset(std::string_view name);

/// One training step. Errors: sizes that are not positive, another number of stages than four,
/// groups of basic blocks, a batch with one value per channel, 2^60 elements or more.
Result<ExecutionGraph> build_resnet(const ResnetConfig& config);

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

/// Inception-v3 (Szegedy et al., 2015) as torchvision has it.
struct InceptionConfig {
  std::string name = "inception_v3";
  std::int64_t classes = 1000;
  std::int64_t batch = 32;
  std::int64_t resolution = 299;  ///< of the square image, three colours
  /// The second classifier behind the last block of 768 channels; its loss counts 0.4.
  bool auxiliary = true;
  double dropout = 0.5;
  TrainingOptions training;
};

/// "inception_v3".
Result<InceptionConfig> inception_preset(std::string_view name);

/// One training step. Errors: sizes that are not positive, an image that is too small (75, with
/// the auxiliary classifier 299), a dropout outside [0, 1), 2^60 elements or more.
Result<ExecutionGraph> build_inception(const InceptionConfig& config);

/// A detector like Faster R-CNN (Ren et al., 2015) with torchvision's ops: ResNet-50 without its
/// head, a region proposal network on its last stage, RoI align, two linear layers of width
/// `hidden`, a class and a box per region.
///
/// What depends on data in the real model is given by numbers, and some bookkeeping is left out:
/// - `kept` regions per image behind the suppression, `sampled` regions per image in the loss,
///   `sampled_anchors` anchors per image in the loss of the proposals;
/// - targets and the matching of boxes come with the batch as inputs;
/// - images of one size, batch norm that learns; without a pyramid one feature map, the last;
/// - with one, the regions of an image spread evenly over its four maps.
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
  /// Maps of 256 channels of all stages and a fifth one for proposals (Lin et al., arXiv
  /// 1612.03144).
  bool pyramid = false;
  TrainingOptions training;
};

/// "faster_rcnn", or "fasterrcnn_resnet50_fpn": torchvision's, with a pyramid. Batch norm that
/// learns apart, the latter has torchvision's 41,755,286 parameters.
Result<FasterRcnnConfig> faster_rcnn_preset(std::string_view name);

/// One training step on a GPU. Errors: a CPU, sizes that are not positive, more regions kept than
/// candidates or candidates than anchors, 2^60 elements or more.
Result<ExecutionGraph> build_faster_rcnn(const FasterRcnnConfig& config);

/// A Wasserstein GAN (Arjovsky et al., 2017) with the convolutional generator and critic of DCGAN
/// and weight clipping. An iteration of training is `critic_steps` steps of the critic and one of
/// the generator; each is a graph of its own.
struct WganConfig {
  std::string name = "wgan";
  enum class Step {
    kCritic,     ///< real and generated images, loss, optimizer of the critic, clipping
    kGenerator,  ///< generated images through the critic, whose weights are frozen
  } step = Step::kCritic;
  std::int64_t batch = 64;
  std::int64_t latent = 100;   ///< width of the noise
  std::int64_t features = 64;  ///< channels next to the image, doubled with each halving
  std::int64_t image = 64;     ///< height and width: 16, 32, 64, ...
  std::int64_t colours = 3;
  double clip = 0.01;  ///< weights of the critic stay in [-clip, clip]
  TrainingOptions training;
};

/// "wgan": images of 64 x 64; "wgan32": of 32 x 32.
Result<WganConfig> wgan_preset(std::string_view name);

/// One step on a GPU; noise and images are inputs. What is frozen has no gradient and no number in
/// the order of autograd.
///
/// Errors: a CPU (its transposed convolutions are not known), an image that is no power of two of
/// at least 16, sizes that are not positive, a clip that is not, 2^60 elements or more.
Result<ExecutionGraph> build_wgan(const WganConfig& config);

}  // namespace perfmodel
