#include "layout/decoder_in_graph.hpp"

#include <fmt/format.h>

#include <map>
#include <string_view>
#include <utility>

#include "ops/catalogue.hpp"
#include "perfmodel/graph/model_size.hpp"
#include "step/step_view.hpp"

namespace perfmodel {
namespace {

Unexpected no_decoder(std::string_view expected, std::string found) {
  return decline(fmt::format("expected the graph of a decoder-only transformer with {}, found {}",
                             expected, found));
}

/// Facts about the model that the forward pass of the first step shows.
struct ForwardPass {
  const Tensor* words = nullptr;  ///< weight of the embedding of tokens
  std::int64_t batch = 0, tokens = 0, positions = 0;
  std::int64_t cores = 0, heads = 0, key_heads = 0;
  bool fused_attention = false, biases = false, layer_norm = false, dropout = false;
  bool silu = false, relu = false, adam = false, eight_bit = false, tied = false;
  DType products = DType::kFloat32;
  std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> weights;  ///< [in, out] -> products
};

class ForwardReader {
 public:
  explicit ForwardReader(const StepView& step) : step_(step), graph_(step.graph()) {}

  ForwardPass read() {
    const GraphIteration window = first_step(graph_);
    bool forward = true;
    for (std::int32_t i = window.begin; i < window.end; ++i) {
      const Node& node = graph_.node(i);
      const std::string_view name = graph_.name(node);
      forward &= node.scope != Scope::kBackward;
      pass_.adam |= name.starts_with("Optimizer.step#Adam");
      pass_.eight_bit |= name.starts_with("bitsandbytes::");
      if (forward && !is_cast_again(node, name)) read(node, name);
    }
    return std::move(pass_);
  }

 private:
  const Tensor* tensor(const Node& node, std::size_t index) const {
    const auto inputs = graph_.inputs(node);
    if (index >= inputs.size() || inputs[index].kind != Argument::Kind::kTensor) return nullptr;
    return &graph_.tensors[inputs[index].index];
  }

  // Under autocast an op occurs twice: with the arguments of the program, and inside it with the
  // cast arguments of the product.
  bool is_cast_again(const Node& node, std::string_view name) {
    if (node.parent < 0) return false;
    if (graph_.name(node.parent) != name) return false;
    if (name == "aten::mm" || name == "aten::addmm") {
      const Tensor* weight = tensor(node, name == "aten::addmm" ? 2 : 1);
      if (weight) pass_.products = weight->dtype;
    }
    return true;
  }

  void read(const Node& node, std::string_view name) {
    if (name == "aten::embedding") return read_embedding(node);
    if (name == "aten::mm" || name == "aten::addmm") return read_product(node, name);
    if (name == "aten::_softmax") return read_softmax(node);
    if (name == "aten::scaled_dot_product_attention") return read_attention(node);
    pass_.layer_norm |= name == "aten::native_layer_norm";
    pass_.dropout |= name == "aten::native_dropout";
    pass_.silu |= name == "aten::silu";
    pass_.relu |= name == "aten::relu";
  }

  void read_embedding(const Node& node) {
    const Tensor *weight = tensor(node, 0), *indices = tensor(node, 1);
    if (!weight || !indices || weight->rank != 2 || indices->rank != 2) return;
    if (!pass_.words) {
      pass_.words = weight;
      pass_.batch = graph_.shape(*indices)[0];
      pass_.tokens = graph_.shape(*indices)[1];
    } else if (!is_words(*weight)) {
      pass_.positions = graph_.shape(*weight)[0];
    }
  }

  bool is_words(const Tensor& weight) const {
    return step_.storages().of(weight) == step_.storages().of(*pass_.words);
  }

  // [tokens, in] with a weight [in, out].
  void read_product(const Node& node, std::string_view name) {
    const std::size_t left = name == "aten::addmm" ? 1 : 0;
    const Tensor *x = tensor(node, left), *weight = tensor(node, left + 1);
    if (!x || !weight || x->rank != 2 || weight->rank != 2) return;
    if (graph_.shape(*x)[0] != pass_.batch * pass_.tokens) return;
    const std::int64_t in = graph_.shape(*weight)[0], out = graph_.shape(*weight)[1];
    if (pass_.words && out == graph_.shape(*pass_.words)[0]) {
      pass_.tied |= is_words(*weight);
      return;
    }
    pass_.biases |= left == 1;
    pass_.products = weight->dtype;
    ++pass_.weights[{in, out}];
  }

  // Scores are [batch, heads, tokens, tokens] or, as OPT has them, [batch heads, tokens, tokens].
  void read_softmax(const Node& node) {
    const Tensor* scores = tensor(node, 0);
    if (!scores || pass_.batch == 0 || (scores->rank != 4 && scores->rank != 3)) return;
    const auto shape = graph_.shape(*scores);
    if (scores->rank == 3 && shape[0] % pass_.batch != 0) return;
    const std::int64_t heads = scores->rank == 4 ? shape[1] : shape[0] / pass_.batch;
    add_core(heads, heads);
  }
  void read_attention(const Node& node) {
    const Tensor *query = tensor(node, 0), *key = tensor(node, 1);
    if (!query || !key || query->rank != 4 || key->rank != 4) return;
    add_core(graph_.shape(*query)[1], graph_.shape(*key)[1]);
    pass_.fused_attention = true;
  }
  void add_core(std::int64_t heads, std::int64_t key_heads) {
    ++pass_.cores;
    pass_.heads = heads;
    pass_.key_heads = key_heads;
  }

  const StepView& step_;
  const ExecutionGraph& graph_;
  ForwardPass pass_;
};

// Products from another width down to H tell the feed-forward layers; products from H to less than
// H are keys and values of fewer heads.
void read_widths(const ForwardPass& pass, DecoderModel& model) {
  const auto count = [&](std::int64_t in, std::int64_t out) {
    const auto at = pass.weights.find({in, out});
    return at == pass.weights.end() ? 0 : at->second;
  };
  for (const auto& [sizes, products] : pass.weights) {
    const auto [in, out] = sizes;
    if (out == model.hidden && in != model.hidden && products == model.layers) {
      model.feed_forward = in;
    }
  }
  model.gated = count(model.hidden, model.feed_forward) == 2 * model.layers;
  for (const auto& [sizes, products] : pass.weights) {
    const auto [in, out] = sizes;
    const bool of_keys = in == model.hidden && out < model.hidden && out != model.feed_forward;
    if (of_keys && products == 2 * model.layers) {
      model.kv_heads = out / (model.hidden / model.heads);
    }
  }
}

}  // namespace

Result<LayoutJob> decoder_in_graph(const ExecutionGraph& graph) {
  const StepView step(graph);
  const ForwardPass pass = ForwardReader(step).read();
  if (!pass.words) return no_decoder("an embedding of tokens", "none");
  if (pass.cores == 0 || pass.heads == 0) return no_decoder("attention", "none");
  LayoutJob job;
  DecoderModel& model = job.model;
  model.name = "graph";
  model.vocabulary = step.graph().shape(*pass.words)[0];
  model.hidden = step.graph().shape(*pass.words)[1];
  model.layers = pass.cores;
  model.heads = pass.heads;
  model.positions = pass.positions;
  read_widths(pass, model);
  if (model.feed_forward == 0) return no_decoder("a feed-forward product per layer", "none");
  model.biases = pass.biases;
  model.rms_norm = !pass.layer_norm;
  model.activation = pass.silu   ? DecoderModel::Activation::kSilu
                     : pass.relu ? DecoderModel::Activation::kRelu
                                 : DecoderModel::Activation::kGelu;
  model.tied = pass.tied;
  const std::int64_t parameters = model_size(graph).parameters;
  const auto has_all = [&] { return parameter_count(model) == parameters; };
  if (!has_all() && !model.tied) {
    model.tied = true;  // by way of autocast's copy, which has a storage of its own
    model.tied = has_all();
  }
  if (!has_all()) {
    return no_decoder(fmt::format("{} parameters ({} layers of width {}, {} in feed-forward, {} "
                                  "heads, {} words)",
                                  parameter_count(model), model.layers, model.hidden,
                                  model.feed_forward, model.heads, model.vocabulary),
                      std::to_string(parameters));
  }
  job.sequence = pass.tokens;
  job.global_batch = pass.batch;
  job.precision = pass.products == DType::kBFloat16  ? LayoutJob::Precision::kBf16
                  : pass.products == DType::kFloat16 ? LayoutJob::Precision::kFp16
                                                     : LayoutJob::Precision::kFp32;
  job.attention =
      pass.fused_attention ? LayoutJob::Attention::kFlash : LayoutJob::Attention::kEager;
  job.optimizer = pass.eight_bit ? LayoutJob::Optimizer::kAdamW8bit
                  : pass.adam    ? LayoutJob::Optimizer::kAdamW
                                 : LayoutJob::Optimizer::kSgd;
  job.dropout = pass.dropout ? 0.1 : 0;
  return job;
}

}  // namespace perfmodel
