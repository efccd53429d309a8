#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/detail/training_options.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// Settings of all transformers. Shapes: tokens [batch, sequence], activations [batch, sequence,
/// hidden], attention scores [batch, heads, sequence, sequence].
struct TransformerConfig {
  std::string name = "transformer";
  TrainingOptions training = with_adam_w();
  std::int64_t batch = 8;
  std::int64_t sequence = 512;  ///< tokens per sample
  std::int64_t layers = 0, hidden = 0, heads = 0;
  std::int64_t feed_forward = 0;  ///< width between the two products of a feed-forward layer
  std::int64_t vocabulary = 0;
  std::int64_t positions = 0;  ///< longest sequence that has a position embedding, if it has any
  double dropout = 0.1;        ///< 0: the dropout ops hand their input on

  enum class Attention {
    kEager,      ///< products, scaling, mask, softmax and dropout as ops of their own
    kEfficient,  ///< scaled_dot_product_attention with PyTorch's kernel for float32
    kFlash,      ///< the same with the flash kernel: for graphs whose precision is lowered later
  } attention = Attention::kEager;

 private:
  static TrainingOptions with_adam_w() {
    TrainingOptions options;
    options.optimizer = TrainingOptions::Optimizer::kAdamW;
    return options;
  }
};

/// Feed-forward layers of several experts, of which each token goes to a few (Shazeer et al. 2017):
/// the router is a linear layer, a softmax and a top-k; tokens are sorted by expert, and each
/// product of all experts is one `aten::_grouped_mm`, as torchtitan and HuggingFace's `grouped_mm`
/// experts write it. No token is dropped. How many rows an expert gets depends on the data and is
/// not in a graph: it is priced as if all got as many.
struct ExpertsConfig {
  std::int64_t experts = 0;  ///< per layer; 0: layers are dense
  std::int64_t top_k = 2;    ///< experts per token
  std::int64_t hidden = 0;   ///< width inside of one expert; 0: `feed_forward`
  std::int64_t shared = 0;   ///< as wide again, times so many: an expert that takes every token
  /// Weight of the loss that makes loads even (HuggingFace's `router_aux_loss_coef`); 0: none.
  double balance_loss = 0;
};

/// Adapters of low rank on frozen linear layers (LoRA, Hu et al. 2021). Frozen weights have neither
/// gradients nor optimizer state; gradients pass through them.
struct LoraConfig {
  std::int64_t rank = 0;  ///< 0: all weights learn
  enum class On {
    kAttention,  ///< the projections of attention
    kAll,        ///< feed-forward layers, too
  } on = On::kAttention;
};

/// BERT (Devlin et al. 2019) as HuggingFace writes it.
struct BertConfig : TransformerConfig {
  std::int64_t token_types = 2;
  enum class Head {
    kPooler,       ///< BertModel; its mean pooled output stands for a loss
    kMaskedLm,     ///< BertForMaskedLM: every token is predicted
    kCausalLm,     ///< BertLMHeadModel: every token predicts the next one
    kClassifier,   ///< BertForSequenceClassification with two classes
    kPreTraining,  ///< BertForPreTraining: pooler, every token, and whether sentences follow
    /// BertForQuestionAnswering: where an answer begins and ends among the tokens
    kQuestionAnswering,
  } head = Head::kMaskedLm;
  /// Tokens of each sample that the head predicts (kMaskedLm, kPreTraining), picked before it; 0:
  /// all.
  std::int64_t masked_tokens = 0;
};

/// "bert-base" (12 layers of 768) or "bert-large" (24 of 1,024), vocabulary 30,522, sequence 512,
/// batch 8. Parameters with the pooler alone: 109,482,240 and 335,141,888.
Result<BertConfig> bert_preset(std::string_view name);

/// One step: copies of tokens and labels, masks, embeddings, layers, head, loss. The decoder of the
/// language models shares the weight of the word embeddings. No sample is padded.
///
/// Errors: as `TransformerConfig` says; a sequence longer than the positions.
Result<ExecutionGraph> build_bert(const BertConfig& config);

/// GPT-2 and GPT-3 (Radford et al. 2019, Brown et al. 2020) as HuggingFace's GPT2LMHeadModel writes
/// them: products with weights [in, out] ("Conv1D"), the tanh form of GELU in pointwise ops, a mask
/// of the future chosen by `aten::where`, the output layer shares the word embeddings.
struct GptConfig : TransformerConfig {
  enum class Activation {
    kGeluNew,   ///< the tanh form of GELU in eight pointwise ops, as GPT2LMHeadModel has it
    kGeluTanh,  ///< the same in one kernel
    kGelu,      ///< with erf, one kernel (nanoGPT)
    kRelu,
    kSilu,
  } activation = Activation::kGeluNew;
  bool tied = true;    ///< the output layer shares the word embeddings
  bool biases = true;  ///< biases of the layers' products
  /// Eager attention scales, masks and normalises scores in one kernel, as Megatron does.
  bool fused_softmax = false;
  ExpertsConfig experts;  ///< two products each, without biases
};

/// gpt2, gpt2-medium, gpt2-large, gpt2-xl (124,439,808 to 1,557,611,200 parameters, sequence
/// 1,024); gpt3-xl and gpt3-2.7b in the shapes of NeuSight's measurements (its XL is 3,072 wide,
/// not 2,048 as in the paper of GPT-3); gpt3-175b (96 layers of 12,288, sequence 2,048).
Result<GptConfig> gpt_preset(std::string_view name);
std::vector<std::string_view> gpt_presets();

/// `tokens` per sample. The table of positions grows with them where it has fewer rows.
void set_sequence(GptConfig& config, std::int64_t tokens);

/// One step: copies of tokens and labels, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_gpt(const GptConfig& config);

/// OPT (Zhang et al. 2022) as HuggingFace's OPTForCausalLM writes it: norm before each part, ReLU,
/// products of [batch * heads] matrices, an added mask with torch.max below it, positions that
/// start at row 2, an output layer that shares the word embeddings.
struct OptConfig : TransformerConfig {};

/// opt-125m, opt-1.3b, opt-2.7b, opt-6.7b: 125,239,296 parameters, 1,315,758,080 and more.
Result<OptConfig> opt_preset(std::string_view name);
std::vector<std::string_view> opt_presets();

/// One step: copies of tokens and labels, mask, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_opt(const OptConfig& config);

/// A decoder with root-mean-square norms, rotary positions, gated feed-forward layers and grouped
/// keys and values (Touvron et al. 2023), as HuggingFace's LlamaForCausalLM writes it. There is no
/// dropout; `feed_forward` is the width of gate and up products.
struct LlamaConfig : TransformerConfig {
  std::int64_t kv_heads = 0;  ///< heads of keys and values; heads is a multiple of it
  bool tied = false;          ///< the output layer shares the word embeddings
  bool biases = false;        ///< biases of the layers' products
  /// `aten::_fused_rms_norm` (torch.nn.RMSNorm from PyTorch 2.8 on; the kernels of Apex and
  /// flash-attn move as much). Weights of half types need it.
  bool fused_norms = false;
  ExpertsConfig experts;  ///< three products each: gate, up, down
  LoraConfig lora;        ///< experts have no adapters
};

/// llama-7b (6,738,415,616 parameters), llama2-13b, llama3-8b (8,030,261,248), tinyllama-1.1b
/// (1,100,048,384), llama-small (12 layers of 768) and, with 8 experts of which 2 take a token,
/// mixtral-8x7b (46,702,792,704) and mixtral-8x22b (140,630,071,296).
Result<LlamaConfig> llama_preset(std::string_view name);
std::vector<std::string_view> llama_presets();

/// One step: copies of tokens and labels, embeddings, layers, scores of the next token, loss.
Result<ExecutionGraph> build_llama(const LlamaConfig& config);

/// T5 (Raffel et al. 2020) as HuggingFace's T5ForConditionalGeneration writes it: an encoder and a
/// decoder of root-mean-square norms, no biases, positions as a learned bias on the scores of the
/// first layer's attention, which the other layers share. `sequence` and `layers` are the
/// encoder's.
///
/// With experts it is a Switch Transformer (Fedus et al. 2022): in every second layer a router
/// sends each token to one of several feed-forward layers. How many it gets depends on the data;
/// here each expert gets its share of the tokens, at most its capacity per sample.
struct T5Config : TransformerConfig {
  std::int64_t decoder_layers = 0;
  std::int64_t target_sequence = 128;  ///< tokens per sample of the decoder
  std::int64_t head_width = 64;        ///< heads * head_width need not be hidden
  std::int64_t buckets = 32;           ///< rows of the position bias
  bool gated = false;  ///< gate * up with gelu_new (T5 1.1, FLAN); otherwise ReLU, and the output
                       ///< layer shares the word embeddings
  std::int64_t experts = 0;           ///< per sparse layer; 0: none is sparse
  std::int64_t expert_capacity = 64;  ///< tokens of a sample that one expert takes
};

/// t5-small (60,506,624 parameters), t5-base (222,903,552), t5-large (737,668,096), flan-t5-base
/// (247,577,856), switchxl4 (NeuSight's: 24 + 24 layers, 4 experts).
Result<T5Config> t5_preset(std::string_view name);
std::vector<std::string_view> t5_presets();

/// One step: copies of tokens and labels, encoder, decoder, scores, loss.
Result<ExecutionGraph> build_t5(const T5Config& config);

/// The Transformer (Vaswani et al. 2017, arXiv 1706.03762): encoder and decoder with cross
/// attention, norm after the sum, ReLU, fixed sine positions; source words, target words and the
/// output layer share one matrix. Written like HuggingFace's MarianMTModel, without its bias of the
/// scores.
///
/// `layers` counts the encoder's layers, `sequence` its tokens per sentence, `batch` sentences.
/// `dropout` follows the embeddings and each sub-layer, as in the paper.
struct EncoderDecoderConfig : TransformerConfig {
  std::int64_t decoder_layers = 0;
  std::int64_t target_sequence = 32;  ///< tokens per sentence of the decoder
  double inner_dropout = 0;           ///< on attention weights and inside feed-forward layers
  double label_smoothing = 0.1;
};

/// "transformer-base" (6 + 6 layers of 512, 63,082,496 parameters) and "transformer-big" (6 + 6 of
/// 1,024, 214,245,376) of the paper, shared vocabulary of 37,000, 64 sentences of 32 tokens, Adam.
Result<EncoderDecoderConfig> transformer_preset(std::string_view name);
std::vector<std::string_view> transformer_presets();

/// V H + L_e (4 (H^2 + H) + 2 H F + F + H + 4 H) + L_d (8 (H^2 + H) + 2 H F + F + H + 6 H).
std::int64_t parameter_count(const EncoderDecoderConfig& config);

/// One step: copies of tokens and labels, embeddings, encoder, decoder, scores, loss. No sentence
/// is padded. Errors: as `TransformerConfig` says; sequences longer than the positions; another
/// attention than kEager.
Result<ExecutionGraph> build_transformer(const EncoderDecoderConfig& config);

/// nn.Embedding, `layers` of nn.TransformerEncoderLayer (batch first, norm after the sum, GELU)
/// and a linear layer to the vocabulary, with the cross entropy of each token. Positions are not
/// used.
///
/// Training goes through F.multi_head_attention_forward: one product for queries, keys and values
/// of [sequence, batch, hidden]; PyTorch 1.13 computes the attention in separate ops, so it takes
/// `Attention::kEager` alone.
///
/// Errors: sizes that are not positive or do not divide, or that make tensors of 2^60 elements.
Result<ExecutionGraph> build_torch_encoder(const TransformerConfig& config);

}  // namespace perfmodel
