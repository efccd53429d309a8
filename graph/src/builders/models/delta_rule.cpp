#include "delta_rule.hpp"

#include "builders/emit/graph_views.hpp"
#include "builders/emit/matmul.hpp"
#include "builders/emit/pointwise.hpp"

namespace perfmodel {
namespace {

/// Everything between the inputs and the result.
struct DeltaChunks {
  TensorRef inverse, w, u, states, fresh, scores;
};

TensorRef turned(GraphBuilder& graph, TensorRef x) { return transpose(graph, x, 1, 2); }

// The inverse of a triangle takes at most as many FLOP as one product of its size.
TensorRef inverse_of_keys(GraphBuilder& graph, TensorRef keys, std::int64_t sequence) {
  const TensorRef triangle = bmm(graph, keys, turned(graph, keys), sequence);
  return bmm(graph, triangle, triangle, sequence);
}

DeltaChunks chunks_of(GraphBuilder& graph, TensorRef queries, TensorRef keys, TensorRef values,
                      TensorRef inverse, std::int64_t sequence = -1) {
  DeltaChunks made{.inverse = inverse};
  const TensorRef turned_keys = turned(graph, keys);
  made.w = bmm(graph, inverse, keys, sequence);
  made.u = bmm(graph, inverse, values, sequence);
  made.states = bmm(graph, turned_keys, made.u, sequence);
  made.fresh = add(graph, made.u, bmm(graph, made.w, made.states, sequence), sequence);
  made.scores = bmm(graph, queries, turned_keys, sequence);
  return made;
}

/// Gradients of both factors of a product.
struct FactorGradients {
  TensorRef left, right;
};
FactorGradients gradients_of(GraphBuilder& graph, TensorRef left, TensorRef right,
                             TensorRef gradient) {
  return {bmm(graph, gradient, turned(graph, right)), bmm(graph, turned(graph, left), gradient)};
}

std::vector<TensorRef> gradients_of_rule(GraphBuilder& graph, TensorRef queries, TensorRef keys,
                                         TensorRef values, TensorRef inverse, TensorRef gradient) {
  const DeltaChunks of = chunks_of(graph, queries, keys, values, inverse);
  const TensorRef turned_keys = turned(graph, keys);
  const auto carried = gradients_of(graph, queries, of.states, gradient);
  const auto within = gradients_of(graph, of.scores, of.fresh, gradient);
  const auto scores = gradients_of(graph, queries, turned_keys, within.left);
  const auto forgotten = gradients_of(graph, of.w, of.states, within.right);
  const TensorRef of_states = add(graph, carried.right, forgotten.right);
  const auto states = gradients_of(graph, turned_keys, of.u, of_states);
  const auto u = gradients_of(graph, inverse, values, add(graph, within.right, states.right));
  const auto w = gradients_of(graph, inverse, keys, forgotten.left);
  const TensorRef of_inverse = add(graph, u.left, w.left);
  const TensorRef turned_inverse = turned(graph, inverse);
  const TensorRef triangle = bmm(graph, turned_inverse, bmm(graph, of_inverse, turned_inverse));
  const auto products = gradients_of(graph, keys, turned_keys, triangle);
  TensorRef of_keys = add(graph, w.right, products.left);
  for (const TensorRef part : {scores.right, states.left, products.right}) {
    of_keys = add(graph, of_keys, turned(graph, part));
  }
  return {add(graph, carried.left, scores.left), of_keys, u.right};
}

}  // namespace

TensorRef delta_rule(AutogradTape& tape, TensorRef queries, TensorRef keys, TensorRef values) {
  GraphBuilder& graph = tape.graph();
  const std::int64_t sequence = tape.sequence();
  const TensorRef inverse = inverse_of_keys(graph, keys, sequence);
  const DeltaChunks of = chunks_of(graph, queries, keys, values, inverse, sequence);
  const TensorRef carried = bmm(graph, queries, of.states, sequence);
  const TensorRef fresh = bmm(graph, of.scores, of.fresh, sequence);
  const TensorRef out = add(graph, carried, fresh, sequence);
  tape.record("ChunkGatedDeltaRuleBackward0", {queries, keys, values}, out,
              [&graph, queries, keys, values, inverse](TensorRef gradient) {
                return gradients_of_rule(graph, queries, keys, values, inverse, gradient);
              });
  return out;
}

}  // namespace perfmodel
