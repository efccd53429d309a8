#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// A model by the names of its family and preset, for callers that have names and numbers rather
/// than C++ types. Zeros and empty texts keep what the preset has.
struct ModelRequest {
  std::string family;         ///< one of `model_families()`
  std::string preset = {};    ///< one of the family's; empty: a small usual one
  std::int64_t batch = 0;     ///< samples per step
  std::int64_t sequence = 0;  ///< tokens per sample; of transformers alone
  std::int64_t layers = 0;    ///< transformers only (T5: encoder and decoder)
  /// none, sgd, momentum, adagrad, adam or adamw. DLRMs with batched tables: sgd, adagrad,
  /// rowwise_adagrad or adam.
  std::string optimizer = {};
};

/// Builds one training step with the family's `build_dlrm`, `build_gpt`, ...
///
/// Errors: an unknown family, preset or optimizer; a sequence or layers that the family does not
/// have; negative numbers; as for the family's `build_*`.
Result<ExecutionGraph> build_model(const ModelRequest& request);

/// bert, dlrm, gpt, inception, llama, mlp, opt, resnet, t5, vgg.
std::vector<std::string_view> model_families();

/// A classifier of linear layers with ReLU in between, cross entropy as its loss.
struct MlpConfig {
  std::string name = "mlp";
  std::vector<std::int64_t> widths = {784, 512, 512, 10};  ///< features first, classes last
  std::int64_t batch = 64;
  bool relu_behind_last = false;  ///< ReLU after the last layer, too
  bool softmax = false;           ///< nn.Softmax before the loss
  TrainingOptions training;
};

/// "mnist", or "linear": the 21 layers of width 1,024, each with a ReLU, and the softmax of
/// param-bench's sample workload, batch 512.
Result<MlpConfig> mlp_preset(std::string_view name);

/// One training step. Errors: no layer, sizes that are not positive, 2^60 elements or more.
Result<ExecutionGraph> build_mlp(const MlpConfig& config);

/// An agent for Atari games that learns by advantage actor-critic (A3C, Mnih et al. 2016, arXiv
/// 1602.01783): two convolutions of 16 8x8 filters (stride 4) and 32 4x4 filters (stride 2), a
/// linear layer, a head for the policy and one for the value, ReLU in between.
///
/// An update is one step. First the agent acts, without gradients, `rollout` times in `batch`
/// environments: frames are copied to the device, the host waits for the probabilities, chooses and
/// plays; one more pass values where it ended. Then it learns from all batch * rollout frames,
/// which are still on the device:
///   loss = -mean(log p(a) A) + 0.5 mean(A^2) - 0.01 entropy,  A = R - V
/// The environments themselves take no time here.
struct A3cConfig {
  std::string name = "a3c";
  std::int64_t batch = 16;  ///< environments that are played together
  std::int64_t rollout = 5;
  std::int64_t frames = 4;       ///< the latest ones, as channels
  std::int64_t resolution = 84;  ///< height and width of a frame
  std::int64_t actions = 6;
  std::vector<std::int64_t> channels = {16, 32};
  std::int64_t hidden = 256;
  bool lstm = false;  ///< an LSTM cell of width `hidden` in front of the heads
  TrainingOptions training = with_adam();

 private:
  static TrainingOptions with_adam() {
    TrainingOptions options;
    options.optimizer = TrainingOptions::Optimizer::kAdam;
    return options;
  }
};

/// "a3c" (677,943 parameters with six actions) and "a3c-lstm" (1,204,279).
Result<A3cConfig> a3c_preset(std::string_view name);

/// 64 F C1 + C1 + 16 C1 C2 + C2 + (C2 S^2 + 1) H + [8 H (H + 1)] + (H + 1) (A + 1), S x S what the
/// convolutions leave of a frame.
std::int64_t parameter_count(const A3cConfig& config);

/// One update. The optimizer is Adam where the paper has RMSProp; gradients are not clipped.
///
/// Errors: sizes below 1, another number of convolutions than two, frames of which nothing is left,
/// tensors of 2^60 elements or more.
Result<ExecutionGraph> build_a3c(const A3cConfig& config);

enum class RecurrentCell { kLstm, kGru };

/// How the recurrent layers of a model are computed.
enum class RecurrentForm {
  kLibrary,  ///< nn.LSTM or nn.GRU: one call of cuDNN for all layers and steps
  kCells,    ///< nn.LSTMCell or nn.GRUCell in a loop: two products and a fused kernel per step
  kUnfused,  ///< a cell written in Python: two products and one kernel per sign
};

/// Parameters of one layer in one direction on inputs of width `input`: for G gates (LSTM 4, GRU 3)
/// G H (I + H) weights and 2 G H biases.
std::int64_t recurrent_parameters(RecurrentCell cell, std::int64_t input, std::int64_t hidden);

/// FLOP of its products in one forward pass over `positions` = steps times batch:
/// 2 positions G H (I + H). The backward pass has twice as many.
double recurrent_forward_flop(RecurrentCell cell, std::int64_t input, std::int64_t hidden,
                              std::int64_t positions);

/// A recurrent language model: embedding, dropout, L layers of LSTM or GRU, dropout, a linear layer
/// onto the vocabulary, cross entropy. Tokens and targets are [T, B], as in PyTorch's example
/// word_language_model.
struct LstmConfig {
  std::string name = "lstm";
  RecurrentCell cell = RecurrentCell::kLstm;
  RecurrentForm form = RecurrentForm::kLibrary;
  std::int64_t vocabulary = 10'000, embedding = 650, hidden = 650, layers = 2;
  double dropout = 0.5;  ///< after the embedding and every layer; 0: none is called
  std::int64_t batch = 20, steps = 35;
  TrainingOptions training;
};

/// ptb-small, ptb-medium, ptb-large: Zaremba et al. (arXiv 1409.2329) on Penn Treebank, 10,000
/// words; wikitext-2: the defaults of PyTorch's word_language_model. All train with plain SGD.
Result<LstmConfig> lstm_preset(std::string_view name);

/// V E + layers + H V + V; a layer has G H (I + H + 2) with G = 4 (LSTM) or 3 (GRU).
std::int64_t parameter_count(const LstmConfig& config);

/// The execution graph of one training step. States start at zero in every step; the states of the
/// last one are not kept. Loops over cells go step by step through all layers, over inputs that
/// were taken apart once (`x.unbind(0)`).
///
/// Errors: sizes below 1, a dropout outside of [0, 1), tensors of 2^60 elements or more.
Result<ExecutionGraph> build_lstm(const LstmConfig& config);

/// Translation with a recurrent encoder and decoder and attention by a small MLP (Bahdanau et al.,
/// arXiv 1409.0473), as Sockeye has it:
///   encoder   embedding, nn.LSTM; the first of its layers may run in both directions with H/2 each
///   decoder   per target word: a stack of cells on [embedding, previous output]; scores
///             v . tanh(W q + U k) over all source positions, softmax, context; output
///             tanh(C [state, context]); teacher forcing
///   loss      a linear layer onto the target vocabulary over all outputs, cross entropy
/// Source and target are [T, B]. Attention reads the source as [B, T, H], copied once.
struct Seq2seqConfig {
  std::string name = "seq2seq";
  RecurrentCell cell = RecurrentCell::kLstm;
  RecurrentForm encoder_form = RecurrentForm::kLibrary;
  RecurrentForm decoder_form = RecurrentForm::kCells;  ///< kLibrary is not possible
  bool bidirectional = true;                           ///< first layer of the encoder
  /// kMxnet: cells, pieces and loss as Sockeye 1.12 has them in MXNet, which keep more; the forms
  /// stay as they are, cells are LSTMs.
  enum class Software { kPyTorch, kMxnet } software = Software::kPyTorch;
  bool attention_norm = false;  ///< scores of the attention are normalised, in single ops
  std::int64_t source_vocabulary = 17'191, target_vocabulary = 7'709;
  std::int64_t embedding = 512, hidden = 512, attention = 512;
  std::int64_t encoder_layers = 2, decoder_layers = 2;
  double dropout = 0;  ///< after embeddings and between layers
  std::int64_t batch = 64;
  std::int64_t source_steps = 30, target_steps = 30;
  TrainingOptions training;
};

/// sockeye: the configuration of TBD (Zhu et al., IISWC 2018), 2 + 2 layers of 512 on IWSLT15
/// English-Vietnamese.
Result<Seq2seqConfig> seq2seq_preset(std::string_view name);

/// Closed form, by part.
std::int64_t parameter_count(const Seq2seqConfig& config);

/// The execution graph of one training step.
///
/// Errors: sizes below 1, a dropout outside of [0, 1), an odd hidden size with two directions, a
/// decoder by library call (it needs its own output of the step before), an encoder that is no
/// library call with two directions, a form or a GRU in MXNet, tensors of 2^60 elements or more.
Result<ExecutionGraph> build_seq2seq(const Seq2seqConfig& config);

/// Deep Speech 2 (Amodei et al., arXiv 1512.02595) as the MLPerf v0.5 and TBD benchmarks train it:
/// spectrograms [B, 1, F, T] through 2-D convolutions with batch norm and a ReLU clipped at 20,
/// recurrent layers in both directions whose outputs are added up, batch norm between them, a
/// linear layer without bias onto the characters, CTC loss.
struct Deepspeech2Config {
  /// Kernels over frequency x time.
  struct Convolution {
    std::int64_t channels = 32;
    std::int64_t frequency_kernel = 41, time_kernel = 11;
    std::int64_t frequency_stride = 2, time_stride = 2;
    std::int64_t frequency_padding = 20, time_padding = 5;
  };

  std::string name = "deepspeech2";
  std::int64_t frequencies = 161;  ///< per window of 20 ms at 16 kHz
  std::vector<Convolution> convolutions = {
      {}, {.frequency_kernel = 21, .time_stride = 1, .frequency_padding = 10}};
  RecurrentCell cell = RecurrentCell::kGru;
  std::int64_t layers = 5, hidden = 800;
  std::int64_t characters = 29, batch = 32;
  std::int64_t frames = 800;       ///< per sample
  std::int64_t target_steps = 80;  ///< characters per transcript
  TrainingOptions training;
};

/// mlperf: 5 GRU layers of 800, convolutions without padding (MLPerf training v0.5); librispeech: 5
/// LSTM layers of 1,024 (default of deepspeech.pytorch); tbd: 5 GRU layers of 1,760, as TBD takes
/// MXNet's example (Zhu et al., IISWC 2018; widths from memory).
Result<Deepspeech2Config> deepspeech2_preset(std::string_view name);

/// Steps that remain after the convolutions.
std::int64_t output_steps(const Deepspeech2Config& config);
/// Values per step after the convolutions.
std::int64_t recurrent_input(const Deepspeech2Config& config);
std::int64_t parameter_count(const Deepspeech2Config& config);

/// The execution graph of one training step. All samples have full length, so nothing is packed or
/// masked.
///
/// Errors: sizes below 1, kernels larger than their padded input, targets longer than the steps
/// that CTC aligns them with, tensors of 2^60 elements or more.
Result<ExecutionGraph> build_deepspeech2(const Deepspeech2Config& config);

/// A residual network (He et al., 2015) as torchvision has it: a 7x7 stem, four stages of blocks,
/// mean over the image, one linear layer, cross entropy. Stages have 64, 128, 256 and 512 channels
/// (four times as many after bottlenecks); all but the first halve the image.
struct ResnetConfig {
  std::string name = "resnet18";
  enum class Block { kBasic, kBottleneck } block = Block::kBasic;
  std::vector<std::int64_t> blocks = {2, 2, 2, 2};  ///< per stage
  /// Of bottlenecks: groups of the 3x3 convolution and their channels in the first stage, 1 and 64
  /// in a plain ResNet (ResNeXt 32 and 4, wide ones 1 and 128).
  std::int64_t groups = 1, width_per_group = 64;
  std::int64_t classes = 1000, batch = 32;
  std::int64_t resolution = 224;  ///< side of the square image, three colours
  /// Targets are probabilities of all classes [B, classes], like a benchmark's random data;
  /// otherwise class numbers.
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
    std::int64_t channels = 0;  ///< a convolution's, with bias and ReLU; 0: max pooling
    std::int64_t kernel = 3, stride = 1, padding = 1;
  };
  std::vector<Layer> features;
  bool batch_norm = false;
  std::int64_t pooled = 7;  ///< height and width that the linear layers get
  std::int64_t hidden = 4096;
  double dropout = 0.5;
  bool dropout_in_front = false;  ///< before the linear layers, as in AlexNet; else after them
  std::int64_t classes = 1000, batch = 32;
  std::int64_t resolution = 224;  ///< side of the square image, three colours
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
  std::int64_t classes = 1000, batch = 32;
  std::int64_t resolution = 299;  ///< side of the square image, three colours
  /// The second classifier, after the last block of 768 channels; its loss counts 0.4.
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
/// Fixed numbers replace counts that depend on the data, and some bookkeeping is left out:
/// - `kept` regions per image after the suppression, `sampled` regions per image in the loss,
///   `sampled_anchors` anchors per image in the loss of the proposals;
/// - targets and the matching of boxes come with the batch as inputs;
/// - images of one size, batch norm that learns; without a pyramid one feature map, the last;
/// - with one, the regions of an image spread evenly over its four maps.
struct FasterRcnnConfig {
  std::string name = "faster_rcnn";
  std::int64_t batch = 2;
  std::int64_t resolution = 800;   ///< side of the square image, three colours
  std::int64_t classes = 91;       ///< background included
  std::int64_t anchors = 15;       ///< per place of the feature map
  std::int64_t candidates = 2000;  ///< best proposals per image that go into the suppression
  std::int64_t kept = 1000;        ///< proposals that remain
  std::int64_t sampled = 512;      ///< regions per image
  std::int64_t sampled_anchors = 256, hidden = 1024;
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

/// One step on a GPU; noise and images are inputs. Frozen layers have no gradient and no number in
/// the order of autograd.
///
/// Errors: a CPU (its transposed convolutions are not known), an image that is no power of two of
/// at least 16, sizes that are not positive, a clip that is not, 2^60 elements or more.
Result<ExecutionGraph> build_wgan(const WganConfig& config);

}  // namespace perfmodel
