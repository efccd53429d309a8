#pragma once

#include "autograd_tape.hpp"

namespace perfmodel {

// Experts as programs with grouped products compute them (torchtitan's and HuggingFace's
// `grouped_mm` experts): rows of tokens are sorted by expert, one product serves all experts.

/// torch._grouped_mm, without gradient. rows [T, K] times matrices [E, K, N] -> [T, N], where rows
/// up to ends[e] belong to matrix e; or columns [M, T] times rows [T, N] -> [E, M, N].
TensorRef grouped_mm(GraphBuilder& graph, TensorRef a, TensorRef b, TensorRef ends,
                     std::int64_t sequence = -1);

/// rows [T, K], weights [E, N, K] as in linear layers -> [T, N].
TensorRef grouped_linear(AutogradTape& tape, TensorRef rows, TensorRef weights, TensorRef ends);

/// Which experts each token goes to. How many rows an expert gets depends on the data; only the
/// device knows it (`ends`), and nothing waits for it.
struct ExpertRouting {
  TensorRef chances;  ///< [T, E], softmax of the router's scores
  TensorRef chosen;   ///< [T, k], whole numbers: the experts of a token
  TensorRef tokens;   ///< [T k], whole numbers: the token of each row, sorted by expert
  TensorRef ends;     ///< [E], 32 bits: end of each expert's rows
  TensorRef weights;  ///< [T k, 1] of each row in the sum of its token
};

/// The `top_k` likeliest experts of each token by scores [T, E]. Weights are the chances; of
/// several experts they are divided by their sum.
ExpertRouting route_to_best(AutogradTape& tape, TensorRef scores, std::int64_t top_k);

/// Rows of x [T, H] for the experts: [T k, H].
TensorRef rows_for_experts(AutogradTape& tape, TensorRef x, const ExpertRouting& routing);

/// The weighted sum of the experts' results for each token; x [T, H] gives the shape.
TensorRef sum_of_experts(AutogradTape& tape, TensorRef x, TensorRef rows,
                         const ExpertRouting& routing);

/// E times the sum over experts of (share of the tokens that it gets, mean of its chance):
/// HuggingFace adds it to the loss so that loads become even (Switch Transformer, equation 4).
TensorRef balance_loss(AutogradTape& tape, const ExpertRouting& routing);

}  // namespace perfmodel
