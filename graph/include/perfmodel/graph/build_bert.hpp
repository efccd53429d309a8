#pragma once

#include <string_view>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/transformer_config.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel {

/// BERT (Devlin et al. 2019) as HuggingFace writes it.
struct BertConfig : TransformerConfig {
  std::int64_t token_types = 2;
  enum class Head {
    kPooler,       ///< BertModel; its mean pooled output stands for a loss
    kMaskedLm,     ///< BertForMaskedLM: every token is predicted
    kCausalLm,     ///< BertLMHeadModel: every token predicts the next one
    kClassifier,   ///< BertForSequenceClassification with two classes
    kPreTraining,  ///< BertForPreTraining: pooler, every token, and whether sentences follow
  } head = Head::kMaskedLm;
};

/// "bert-base" (12 layers of 768) or "bert-large" (24 of 1,024), vocabulary 30,522, sequence 512,
/// batch 8. Parameters with the pooler alone: 109,482,240 and 335,141,888.
Result<BertConfig> bert_preset(std::string_view name);

/// One step: copies of tokens and labels, masks, embeddings, layers, head, loss. The decoder of the
/// language models shares the weight of the word embeddings. No sample is padded.
///
/// Errors: as `TransformerConfig` says; a sequence longer than the positions.
Result<ExecutionGraph> build_bert(const BertConfig& config);

}  // namespace perfmodel
