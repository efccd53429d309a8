#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "loop_graph.hpp"
#include "step/step_view.hpp"

namespace perfmodel {

/// Writes loops for nodes of a graph. It follows each storage through views and ops in place.
class LoopBuilder {
 public:
  explicit LoopBuilder(const StepView& step)
      : step_(step),
        current_(step.storages(), -1),
        order_(step.tensors(), Order::kSame),
        root_(step.tensors(), -1) {}

  const ExecutionGraph& source() const { return step_.graph(); }
  LoopGraph& graph() { return graph_; }
  /// Begins another graph of loops; views stay known.
  void restart();
  bool in_backward() const { return in_backward_; }
  void set_backward(bool in_backward) { in_backward_ = in_backward; }
  /// Says whether the next ops belong to a function that recomputes the forward pass.
  void set_stays(bool stays) { stays_ = stays; }

  /// The value that a mention sees now.
  LoopRead read(const Tensor& mention);
  /// The same with another count of elements and no order: a lookup.
  LoopRead look_up(const Tensor& mention, std::int64_t numel);
  /// A tensor that an op makes or changes. The op must read `changed`, if there is one: the mention
  /// is a part of it.
  struct Written {
    std::int32_t value = -1;
    std::optional<LoopRead> changed = {};
  };
  Written write(const Tensor& mention);
  /// A tensor that no node mentions.
  std::int32_t temporary(std::int64_t numel, const Tensor& like, DType dtype = DType::kFloat32);

  void allocate(const Tensor& mention);
  /// The elements of a view: as they were, with two dimensions exchanged, or otherwise moved.
  enum class Order : std::uint8_t { kSame, kTransposed, kMoved };
  void view(const Tensor& of, const Tensor& result, Order order);

  /// Adds an op that makes these tensors, of the part of the step that is being read.
  void add(LoopOp op, const std::vector<const Tensor*>& made);
  void add(LoopOp op);

  /// The tensor that a mention is a view of; the mention itself if it is none.
  std::uint32_t root(const Tensor& mention) const;
  /// The value of a storage after the last op; -1: no op saw it.
  std::int32_t last_value(const Tensor& mention) const { return current_[mention]; }

 private:
  std::uint32_t entry(const Tensor& mention) const {
    return static_cast<std::uint32_t>(&mention - source().tensors.data());
  }

  const StepView& step_;
  LoopGraph graph_;
  FactsOfValues<std::int32_t> current_;  // value of each storage
  std::vector<const Tensor*> known_;     // mentions whose storage has one
  FactsOfValues<Order> order_;           // by tensor
  FactsOfValues<std::int64_t> root_;     // by tensor
  bool in_backward_ = false, stays_ = false;
};

}  // namespace perfmodel
