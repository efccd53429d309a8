// Recurrent models: op by op against what PyTorch 1.13 recorded of the same small models on a CPU
// (counted here, see docs/builders.md), closed forms, launches per cell.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <ostream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "perfmodel/graph/build_model.hpp"
#include "perfmodel/graph/detail/storage_lifetimes.hpp"
#include "perfmodel/graph/model_size.hpp"

namespace perfmodel {
namespace build_recurrent_test {

using testing::ElementsAreArray;
using Names = std::vector<std::string>;

TrainingOptions on_cpu() {
  TrainingOptions training;
  training.pytorch = {.major = 1, .minor = 13, .device = {.kind = Device::Kind::kCpu}};
  training.pytorch.mkl = false;
  training.step_label.clear();
  return training;
}

// 11 words of width 5, layers of 4, 3 steps, batch 2.
LstmConfig small_lstm(RecurrentCell cell, RecurrentForm form, std::int64_t layers = 1) {
  LstmConfig config;
  config.cell = cell;
  config.form = form;
  config.vocabulary = 11;
  config.embedding = 5;
  config.hidden = 4;
  config.layers = layers;
  config.dropout = layers > 1 ? 0.3 : 0;
  config.batch = 2;
  config.steps = 3;
  return config;
}

Seq2seqConfig small_seq2seq() {
  Seq2seqConfig config;
  config.source_vocabulary = 11;
  config.target_vocabulary = 7;
  config.embedding = 5;
  config.hidden = 4;
  config.attention = 6;
  config.batch = 2;
  config.source_steps = 3;
  config.target_steps = 4;
  return config;
}

Deepspeech2Config small_deepspeech2() {
  Deepspeech2Config config;
  config.frequencies = 12;
  config.convolutions = {{.channels = 2,
                          .frequency_kernel = 5,
                          .time_kernel = 3,
                          .frequency_stride = 2,
                          .time_stride = 2,
                          .frequency_padding = 2,
                          .time_padding = 1},
                         {.channels = 2,
                          .frequency_kernel = 3,
                          .time_kernel = 3,
                          .frequency_stride = 2,
                          .time_stride = 1,
                          .frequency_padding = 1,
                          .time_padding = 1}};
  config.layers = 2;
  config.hidden = 4;
  config.characters = 5;
  config.batch = 2;
  config.frames = 8;
  config.target_steps = 2;
  return config;
}

template <class Config>
Config with_training(Config config, const TrainingOptions& training) {
  config.training = training;
  return config;
}

ExecutionGraph built(Result<ExecutionGraph> graph) {
  if (!graph) {
    ADD_FAILURE() << to_string(graph.error());
    return {};
  }
  return std::move(*graph);
}

ExecutionGraph build(const LstmConfig& config) { return built(build_lstm(config)); }
ExecutionGraph build(const Seq2seqConfig& config) { return built(build_seq2seq(config)); }
ExecutionGraph build(const Deepspeech2Config& config) { return built(build_deepspeech2(config)); }

std::vector<const Node*> named(const ExecutionGraph& graph, std::string_view name) {
  std::vector<const Node*> found;
  for (const Node& node : graph.nodes) {
    if (graph.name(node) == name) found.push_back(&node);
  }
  return found;
}

std::size_t count(const ExecutionGraph& graph, std::string_view name) {
  return named(graph, name).size();
}

Names children(const ExecutionGraph& graph, const Node& node) {
  Names names;
  for (std::int32_t child : graph.children(node)) {
    names.emplace_back(graph.name(graph.nodes[static_cast<std::size_t>(child)]));
  }
  return names;
}

Names children(const ExecutionGraph& graph, std::string_view name) {
  const auto nodes = named(graph, name);
  return nodes.empty() ? Names{} : children(graph, *nodes.front());
}

Names repeat(Names names, const Names& part, int times) {
  for (int i = 0; i < times; ++i) names.insert(names.end(), part.begin(), part.end());
  return names;
}

Names operator+(Names names, const Names& more) { return repeat(std::move(names), more, 1); }

// Ops that PyTorch 1.13 recorded inside of nn.LSTM and nn.GRU with 3 steps.

const Names kLstmStep = {"aten::linear",   "aten::add_",  "aten::unsafe_chunk", "aten::sigmoid_",
                         "aten::sigmoid_", "aten::tanh_", "aten::sigmoid_",     "aten::mul",
                         "aten::mul",      "aten::add_",  "aten::tanh",         "aten::mul"};

TEST(RecurrentOnCpu, LstmIsALoopOverSteps) {
  const auto config =
      with_training(small_lstm(RecurrentCell::kLstm, RecurrentForm::kLibrary), on_cpu());
  const ExecutionGraph graph = build(config);
  const Names expected = repeat({"aten::cudnn_is_acceptable", "aten::unbind", "aten::unbind",
                                 "aten::linear", "aten::unbind"},
                                kLstmStep, 3) +
                         Names{"aten::stack", "aten::stack", "aten::stack"};
  EXPECT_THAT(children(graph, "aten::lstm"), ElementsAreArray(expected));
}

TEST(RecurrentOnCpu, GruKeepsCopiesOfWhatItMultipliesInPlace) {
  const auto config =
      with_training(small_lstm(RecurrentCell::kGru, RecurrentForm::kLibrary), on_cpu());
  const ExecutionGraph graph = build(config);
  const Names step = {"aten::unsafe_chunk", "aten::linear", "aten::unsafe_chunk", "aten::add_",
                      "aten::sigmoid_",     "aten::add_",   "aten::sigmoid_",     "aten::mul_",
                      "aten::add",          "aten::tanh_",  "aten::sub",          "aten::mul_",
                      "aten::add_"};
  const Names expected =
      repeat({"aten::cudnn_is_acceptable", "aten::unbind", "aten::linear", "aten::unbind"}, step,
             3) +
      Names{"aten::stack", "aten::stack"};
  EXPECT_THAT(children(graph, "aten::gru"), ElementsAreArray(expected));
  EXPECT_THAT(children(graph, "aten::mul_"), ElementsAreArray({"aten::clone"}));
}

// All nodes of a recorded step except the optimizer's, in the order in which they started: depth,
// autograd's number, scope, name, shapes of all tensors that go in and come out. FNV-1a of that
// text; the recordings themselves are not kept.
struct Digest {
  std::size_t nodes = 0;
  std::uint64_t hash = 0xcbf29ce484222325;
  friend bool operator==(const Digest&, const Digest&) = default;
  friend std::ostream& operator<<(std::ostream& out, const Digest& digest) {
    return out << digest.nodes << " nodes, hash " << std::hex << digest.hash << std::dec;
  }
};

std::string shapes(const ExecutionGraph& graph, std::span<const Argument> arguments) {
  std::string text;
  bool first = true;
  for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
    if (!first) text += ';';
    first = false;
    bool inner = false;
    for (std::int64_t size : graph.shape(tensor)) {
      text += (inner ? "x" : "") + std::to_string(size);
      inner = true;
    }
  });
  return text;
}

Digest digest(const ExecutionGraph& graph) {
  Digest result;
  std::int64_t first = std::numeric_limits<std::int64_t>::max();
  for (const Node& node : graph.nodes) {
    if (node.seq_id >= 0) first = std::min(first, node.seq_id);
  }
  for (const Node& node : graph.nodes) {
    if (graph.name(node).starts_with("[pytorch|")) continue;
    int depth = 0;
    bool in_optimizer = false;
    for (std::int32_t at = node.parent; at >= 0;
         at = graph.nodes[static_cast<std::size_t>(at)].parent) {
      const std::string_view name = graph.name(graph.nodes[static_cast<std::size_t>(at)]);
      if (!name.starts_with("[pytorch|")) ++depth;
      in_optimizer |= name == "Optimizer.step#SGD.step";
    }
    if (in_optimizer) continue;
    ++result.nodes;
    const std::int64_t sequence = node.seq_id < 0 ? -1 : node.seq_id - first;
    const std::string line =
        std::to_string(depth) + '|' + std::to_string(sequence) + '|' +
        std::to_string(static_cast<int>(node.scope)) + '|' + std::string(graph.name(node)) + '|' +
        shapes(graph, graph.inputs(node)) + '|' + shapes(graph, graph.outputs(node)) + '\n';
    for (const char c : line) {
      result.hash = (result.hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
  }
  return result;
}

TEST(RecurrentOnCpu, LanguageModelsAreWhatWasRecorded) {
  using Cell = RecurrentCell;
  using Form = RecurrentForm;
  struct Recorded {
    Cell cell;
    Form form;
    std::int64_t layers;
    Digest digest;
  };
  const std::vector<Recorded> recordings = {
      {Cell::kLstm, Form::kLibrary, 1, {495, 0x97539783c27b0288}},
      {Cell::kLstm, Form::kLibrary, 2, {908, 0xd2bc2cf28b2282f0}},
      {Cell::kLstm, Form::kCells, 1, {550, 0x1a75ddeb325987dc}},
      {Cell::kLstm, Form::kCells, 2, {1039, 0x50ab5699f44fb0ee}},
      {Cell::kLstm, Form::kUnfused, 1, {547, 0xdceec8d9a7da78eb}},
      {Cell::kLstm, Form::kUnfused, 2, {1033, 0xd90c4a5755399693}},
      {Cell::kGru, Form::kLibrary, 1, {535, 0x965276328d1fca8b}},
      {Cell::kGru, Form::kLibrary, 2, {995, 0xbb3530a3d02eeafb}},
      {Cell::kGru, Form::kCells, 1, {596, 0x9eb1f2df93b062fe}},
      {Cell::kGru, Form::kCells, 2, {1131, 0x4b1d8e80ff1c03f1}},
      {Cell::kGru, Form::kUnfused, 1, {572, 0x7f2135406a9d084d}},
      {Cell::kGru, Form::kUnfused, 2, {1083, 0xcbb37f151ce5dc01}}};
  for (const Recorded& recorded : recordings) {
    const auto config =
        with_training(small_lstm(recorded.cell, recorded.form, recorded.layers), on_cpu());
    EXPECT_EQ(digest(build(config)), recorded.digest)
        << "cell " << static_cast<int>(recorded.cell) << ", form "
        << static_cast<int>(recorded.form) << ", layers " << recorded.layers;
  }
}

TEST(RecurrentOnCpu, TranslationAndSpeechAreWhatWasRecorded) {
  EXPECT_EQ(digest(build(with_training(small_seq2seq(), on_cpu()))),
            (Digest{3240, 0x7245fcca18d4e7d9}));
  EXPECT_EQ(digest(build(with_training(small_deepspeech2(), on_cpu()))),
            (Digest{2584, 0x2b4a9cc536bd112d}));
}

// On a GPU.

TEST(RecurrentOnGpu, OneLibraryCallForAllLayersAndSteps) {
  const ExecutionGraph graph = build(small_lstm(RecurrentCell::kLstm, RecurrentForm::kLibrary, 2));
  EXPECT_THAT(children(graph, "aten::lstm"),
              ElementsAreArray(
                  {"aten::cudnn_is_acceptable", "aten::empty", "aten::set_", "aten::_cudnn_rnn"}));
  EXPECT_EQ(count(graph, "aten::_cudnn_rnn_backward"), 1U);
  EXPECT_EQ(count(graph, "CudnnRnnBackward0"), 1U);
  const Node& forward = *named(graph, "aten::_cudnn_rnn").at(0);
  const auto inputs = graph.inputs(forward);
  ASSERT_EQ(inputs.size(), 16U);
  EXPECT_EQ(inputs[1].count, 8U);    // weights of two layers
  EXPECT_EQ(inputs[6].integer, 2);   // an LSTM
  EXPECT_EQ(inputs[7].integer, 4);   // hidden
  EXPECT_EQ(inputs[9].integer, 2);   // layers
  EXPECT_EQ(inputs[11].real, 0.3);   // dropout
  EXPECT_EQ(inputs[13].integer, 0);  // one direction
  EXPECT_EQ(graph.tensors[inputs[3].index].numel, 4 * 4 * (5 + 4 + 2) + 4 * 4 * (4 + 4 + 2));
  // Two matrices and two biases per layer are looked up in the buffer of gradients.
  EXPECT_EQ(count(graph, "aten::view_as"), 8U);
}

TEST(RecurrentOnGpu, WeightsOfALibraryCallLieInOneBuffer) {
  const ExecutionGraph graph = build(small_lstm(RecurrentCell::kGru, RecurrentForm::kLibrary, 2));
  const auto inputs = graph.inputs(*named(graph, "aten::_cudnn_rnn").at(0));
  const Tensor& buffer = graph.tensors[inputs[3].index];
  std::int64_t elements = 0;
  std::set<std::int64_t> starts;
  for (const Argument& weight : graph.elements(inputs[1])) {
    const Tensor& tensor = graph.tensors[weight.index];
    EXPECT_EQ(tensor.storage_id, buffer.storage_id);
    elements += tensor.numel;
    starts.insert(tensor.offset);
  }
  EXPECT_EQ(elements, buffer.numel);
  EXPECT_EQ(starts.size(), 8U);
}

TEST(RecurrentOnGpu, AFusedCellIsTwoProductsAndOneKernel) {
  const ExecutionGraph graph = build(small_lstm(RecurrentCell::kLstm, RecurrentForm::kCells));
  EXPECT_THAT(children(graph, "aten::lstm_cell"),
              ElementsAreArray({"aten::t", "aten::matmul", "aten::t", "aten::matmul",
                                "aten::_thnn_fused_lstm_cell"}));
  EXPECT_EQ(count(graph, "aten::_thnn_fused_lstm_cell"), 3U);
  EXPECT_EQ(count(graph, "aten::_thnn_fused_lstm_cell_backward_impl"), 3U);
  const ExecutionGraph gru = build(small_lstm(RecurrentCell::kGru, RecurrentForm::kCells));
  EXPECT_EQ(count(gru, "aten::_thnn_fused_gru_cell"), 3U);
  EXPECT_EQ(count(gru, "aten::_thnn_fused_gru_cell_backward"), 3U);
}

// EcoRNN counts for one unfused step: add, 3 sigmoid, 2 tanh, 3 mul, 1 add in the forward pass
// (its 4-way split is a view here), one kernel for the fused cell.
TEST(RecurrentOnGpu, PointwiseLaunchesPerCellAreThoseOfEcoRnn) {
  const auto launches = [](std::int64_t steps, RecurrentForm form) {
    LstmConfig config = small_lstm(RecurrentCell::kLstm, form);
    config.steps = steps;
    config.training.phase = TrainingOptions::Phase::kForward;
    const ExecutionGraph graph = build(config);
    std::map<std::string, std::size_t> counts;
    for (const char* name :
         {"aten::add", "aten::sigmoid", "aten::tanh", "aten::mul", "aten::_thnn_fused_lstm_cell"}) {
      counts[name] = count(graph, name);
    }
    return counts;
  };
  const auto few = launches(3, RecurrentForm::kUnfused),
             more = launches(4, RecurrentForm::kUnfused);
  EXPECT_EQ(more.at("aten::add") - few.at("aten::add"), 2U);
  EXPECT_EQ(more.at("aten::sigmoid") - few.at("aten::sigmoid"), 3U);
  EXPECT_EQ(more.at("aten::tanh") - few.at("aten::tanh"), 2U);
  EXPECT_EQ(more.at("aten::mul") - few.at("aten::mul"), 3U);
  const auto fused = launches(4, RecurrentForm::kCells);
  EXPECT_EQ(fused.at("aten::_thnn_fused_lstm_cell"), 4U);
  EXPECT_EQ(fused.at("aten::sigmoid") + fused.at("aten::tanh") + fused.at("aten::mul"), 0U);
}

// A cell of MXNet keeps 17 numbers per sample, unit and step (both products, 4 H each, the pieces,
// 4 H, and five results), besides its pieces of the input.
TEST(RecurrentOps, CellsOfMxnetKeepWhatItsLogShows) {
  const auto kept = [](std::int64_t steps) {
    Seq2seqConfig config = small_seq2seq();
    config.software = Seq2seqConfig::Software::kMxnet;
    config.bidirectional = false;
    config.encoder_layers = 1;
    config.source_steps = steps;
    config.attention = config.decoder_layers = config.target_steps = 1;
    std::int64_t bytes = 0;
    for (const auto& storage : storage_lifetimes(build(config)).storages) {
      if (storage.purpose == MemoryPurpose::kActivations) bytes += storage.bytes;
    }
    return bytes / static_cast<std::int64_t>(sizeof(float)) / config.batch;
  };
  // Besides the cell: a word's index (8 bytes), its piece of the input, the state in the encoder's
  // result, and of the scoring what its tanh reads and writes, and the weight.
  EXPECT_EQ(kept(9) - kept(8), 17 * 4 + 2 + 5 + 4 + 3);
}

// Closed forms.

TEST(RecurrentSize, ParametersOfAllModelsAndForms) {
  for (RecurrentCell cell : {RecurrentCell::kLstm, RecurrentCell::kGru}) {
    for (RecurrentForm form :
         {RecurrentForm::kLibrary, RecurrentForm::kCells, RecurrentForm::kUnfused}) {
      const LstmConfig config = small_lstm(cell, form, 3);
      EXPECT_EQ(model_size(build(config)).parameters, parameter_count(config));
    }
  }
  EXPECT_EQ(recurrent_parameters(RecurrentCell::kLstm, 5, 4), 4 * 4 * (5 + 4) + 8 * 4);
  EXPECT_EQ(recurrent_parameters(RecurrentCell::kGru, 5, 4), 3 * 4 * (5 + 4) + 6 * 4);
  // Zaremba et al. give 20 M, 66 M for theirs: medium 650, large 1,500.
  EXPECT_EQ(parameter_count(*lstm_preset("ptb-medium")), 19'780'400);
  EXPECT_EQ(parameter_count(*lstm_preset("ptb-large")), 66'034'000);
  EXPECT_EQ(model_size(build(small_seq2seq())).parameters, parameter_count(small_seq2seq()));
  Seq2seqConfig one_way = small_seq2seq();
  one_way.bidirectional = false;
  EXPECT_EQ(model_size(build(one_way)).parameters, parameter_count(one_way));
  Seq2seqConfig mxnet = small_seq2seq();
  mxnet.software = Seq2seqConfig::Software::kMxnet;
  mxnet.attention_norm = true;
  EXPECT_EQ(model_size(build(mxnet)).parameters, parameter_count(mxnet));
  EXPECT_EQ(model_size(build(small_deepspeech2())).parameters,
            parameter_count(small_deepspeech2()));
  EXPECT_EQ(recurrent_input(*deepspeech2_preset("mlperf")), 672);
  EXPECT_EQ(recurrent_input(*deepspeech2_preset("librispeech")), 1312);
}

// The library call counts 3 forward passes; a loop leaves out the gradient of the first state.
TEST(RecurrentSize, FlopOfLibraryCallsAndLoops) {
  const LstmConfig config = small_lstm(RecurrentCell::kLstm, RecurrentForm::kLibrary, 2);
  const double layers = recurrent_forward_flop(RecurrentCell::kLstm, 5, 4, 6) +
                        recurrent_forward_flop(RecurrentCell::kLstm, 4, 4, 6);
  EXPECT_EQ(layers, 2.0 * 6 * 16 * (9 + 8));
  const double decoder = 2.0 * 6 * 4 * 11;
  EXPECT_EQ(model_size(build(config)).matrix_flop, 3 * (layers + decoder));
  const LstmConfig loop = small_lstm(RecurrentCell::kLstm, RecurrentForm::kCells, 2);
  const double first_states = 2 * 2.0 * 2 * 16 * 4;  // two layers, [2, 16] times [16, 4]
  EXPECT_EQ(model_size(build(loop)).matrix_flop, 3 * (layers + decoder) - first_states);
  const LstmConfig unfused = small_lstm(RecurrentCell::kLstm, RecurrentForm::kUnfused, 2);
  EXPECT_EQ(model_size(build(unfused)).matrix_flop, model_size(build(loop)).matrix_flop);
}

TEST(RecurrentErrors, NameWhatIsWrong) {
  const auto lstm = [](const std::function<void(LstmConfig&)>& spoil) {
    LstmConfig config = small_lstm(RecurrentCell::kLstm, RecurrentForm::kLibrary);
    spoil(config);
    const auto graph = build_lstm(config);
    return graph ? std::string("built") : graph.error().message;
  };
  EXPECT_EQ(lstm([](LstmConfig&) {}), "built");
  EXPECT_EQ(lstm([](LstmConfig& c) { c.hidden = 0; }), "hidden: expected at least 1, found 0");
  EXPECT_EQ(lstm([](LstmConfig& c) { c.dropout = 1; }),
            "dropout: expected at least 0 and less than 1, found 1");
  EXPECT_EQ(lstm([](LstmConfig& c) { c.batch = std::int64_t{1} << 60; }),
            "scores: expected less than 2^60 elements, found 3 x 1152921504606846976 x 11");
  const auto seq2seq = [](const std::function<void(Seq2seqConfig&)>& spoil) {
    Seq2seqConfig config = small_seq2seq();
    spoil(config);
    const auto graph = build_seq2seq(config);
    return graph ? std::string("built") : graph.error().message;
  };
  EXPECT_EQ(seq2seq([](Seq2seqConfig& c) { c.decoder_form = RecurrentForm::kLibrary; }),
            "decoder: expected cells or unfused cells (a step needs the attention of the step "
            "before), found a library call");
  EXPECT_EQ(seq2seq([](Seq2seqConfig& c) { c.encoder_form = RecurrentForm::kCells; }),
            "encoder: expected a library call for two directions, found cells");
  EXPECT_EQ(seq2seq([](Seq2seqConfig& c) {
              c.software = Seq2seqConfig::Software::kMxnet;
              c.decoder_form = RecurrentForm::kUnfused;
            }),
            "software: expected no form of cells (MXNet's are single ops), found one");
  EXPECT_EQ(seq2seq([](Seq2seqConfig& c) {
              c.software = Seq2seqConfig::Software::kMxnet;
              c.cell = RecurrentCell::kGru;
            }),
            "cell: expected an LSTM (MXNet's cell of a GRU is not written), found a GRU");
  EXPECT_EQ(seq2seq([](Seq2seqConfig& c) { c.hidden = 5; }),
            "hidden: expected an even size, half for each direction, found 5");
  const auto speech = [](const std::function<void(Deepspeech2Config&)>& spoil) {
    Deepspeech2Config config = small_deepspeech2();
    spoil(config);
    const auto graph = build_deepspeech2(config);
    return graph ? std::string("built") : graph.error().message;
  };
  EXPECT_EQ(speech([](Deepspeech2Config& c) { c.target_steps = 5; }),
            "target steps: expected at most 4 (the steps after the convolutions), found 5");
  EXPECT_EQ(speech([](Deepspeech2Config& c) { c.convolutions[1].frequency_kernel = 9; }),
            "convolution 1: expected a kernel of at most 8 x 6 (its padded input), found 9 x 3");
  EXPECT_EQ(lstm_preset("ptb").error().code, ErrorCode::kUnknownName);
}

}  // namespace build_recurrent_test
}  // namespace perfmodel
