#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/training_options.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

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
