#include "loop_builder.hpp"

#include <algorithm>
#include <utility>

namespace perfmodel {

void LoopBuilder::restart() {
  for (const Tensor* mention : known_) current_[*mention] = -1;
  known_.clear();
  graph_ = {};
}

LoopRead LoopBuilder::read(const Tensor& mention) {
  std::int32_t& value = current_[mention];
  if (value < 0) {
    known_.push_back(&mention);
    value = graph_.add(LoopValue{.numel = mention.numel,
                                 .dtype = mention.dtype,
                                 .device = mention.device,
                                 .tensor = root(mention)});
  }
  const std::int64_t all = graph_.values[value].numel;
  return {.value = value,
          .numel = std::min(mention.numel, all),
          .in_order = order_[mention] == Order::kSame && mention.numel == all};
}

LoopRead LoopBuilder::look_up(const Tensor& mention, std::int64_t numel) {
  LoopRead found = read(mention);
  found.numel = std::min(graph_.values[found.value].numel, numel);
  found.in_order = false;
  return found;
}

LoopBuilder::Written LoopBuilder::write(const Tensor& mention) {
  const std::int32_t before = current_[mention];
  LoopValue made{.numel = mention.numel,
                 .dtype = mention.dtype,
                 .device = mention.device,
                 .tensor = entry(mention)};
  Written written;
  if (before >= 0) {
    const LoopValue& old = graph_.values[before];
    const bool is_part = mention.numel < old.numel;
    if (old.tensor != LoopValue::kNoTensor) made.tensor = old.tensor;
    if (is_part) {
      made.numel = old.numel;
      if (!old.is_blank) written.changed = LoopRead{before, old.numel, true};
    }
  } else {
    made.tensor = root(mention);
  }
  known_.push_back(&mention);
  written.value = current_[mention] = graph_.add(std::move(made));
  return written;
}

std::int32_t LoopBuilder::temporary(std::int64_t numel, const Tensor& like, DType dtype) {
  return graph_.add(LoopValue{.numel = numel, .dtype = dtype, .device = like.device});
}

void LoopBuilder::allocate(const Tensor& mention) {
  if (current_[mention] >= 0) return;
  known_.push_back(&mention);
  current_[mention] = graph_.add(LoopValue{.numel = mention.numel,
                                           .dtype = mention.dtype,
                                           .device = mention.device,
                                           .tensor = entry(mention),
                                           .is_blank = true});
}

void LoopBuilder::view(const Tensor& of, const Tensor& result, Order order) {
  if (of.id == result.id || root_[result] >= 0) return;
  root_[result] = root(of);
  const Order before = order_[of];
  const bool turns_back =
      before == Order::kTransposed && order == Order::kTransposed &&
      std::ranges::equal(source().shape(source().tensors[root(of)]), source().shape(result));
  order_[result] = turns_back               ? Order::kSame
                   : order == Order::kSame  ? before
                   : before == Order::kSame ? order
                                            : Order::kMoved;
}

void LoopBuilder::add(LoopOp op, const std::vector<const Tensor*>& made) {
  for (const Tensor* tensor : made) {
    const Written written = write(*tensor);
    op.writes.push_back(written.value);
    if (!written.changed) continue;
    op.reads.push_back(*written.changed);
    op.rows = std::max(op.rows, written.changed->numel);
  }
  add(std::move(op));
}

void LoopBuilder::add(LoopOp op) {
  op.in_backward = in_backward_;
  op.stays = stays_;
  graph_.add(std::move(op));
}

std::uint32_t LoopBuilder::root(const Tensor& mention) const {
  const std::int64_t found = root_[mention];
  return found < 0 ? entry(mention) : static_cast<std::uint32_t>(found);
}

}  // namespace perfmodel
