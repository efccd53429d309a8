#pragma once

#include <cstdint>
#include <string>

#include "perfmodel/graph/training_options.hpp"

namespace perfmodel {

/// What all transformers share. Shapes: tokens [batch, sequence], activations [batch, sequence,
/// hidden], attention scores [batch, heads, sequence, sequence].
struct TransformerConfig {
  std::string name = "transformer";
  TrainingOptions training = with_adam_w();
  std::int64_t batch = 8;
  std::int64_t sequence = 512;  ///< tokens per sample
  std::int64_t layers = 0;
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
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

}  // namespace perfmodel
