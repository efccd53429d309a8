#include "call.hpp"

/// Sizes of ops that experts and types of 8 and 4 bits add: rows that are sorted by expert,
/// products of groups, quantised copies.
namespace perfmodel::resize {
namespace {

Dims recorded(std::span<const std::int64_t> sizes) {
  Dims dims;
  for (std::int64_t size : sizes) dims.push_back(constant(size));
  return dims;
}

// histc(x, bins): one count per bin.
void of_fixed_size(Call& call) {
  for (std::size_t k = 0; k < call.out_count(); ++k) call.give(k, recorded(call.out_shape(k)));
}

// topk(x, k, dim) -> (values, indices)
void topk(Call& call) {
  const Layout* x = call.in(0);
  const auto count = call.integer(1);
  if (!x || !count || x->dims.empty()) return;
  const auto at = static_cast<std::size_t>(axis(call.integer(2).value_or(-1), x->dims.size()));
  if (at >= x->dims.size()) return;
  Dims dims = x->dims;
  dims[at] = constant(*count);
  for (std::size_t k = 0; k < call.out_count(); ++k) call.give(k, Dims(dims));
}

// one_hot(index, classes)
void one_hot(Call& call) {
  const Layout* index = call.in(0);
  if (!index || call.out_count() == 0 || call.out_shape(0).empty()) return;
  Dims dims = index->dims;
  dims.push_back(constant(call.out_shape(0).back()));
  call.give(0, std::move(dims));
}

// rows [T, K] x matrices [E, K, N] -> [T, N]; columns [M, T] x rows [T, N] -> [E, M, N]
void grouped_mm(Call& call) {
  const Layout *a = call.in(0), *b = call.in(1);
  if (!a || !b || a->dims.size() != 2 || call.out_count() == 0) return;
  if (b->dims.size() == 3) {
    call.unify(a->dims[1], b->dims[1]);
    call.give(0, Dims{a->dims[0], b->dims[2]});
  } else if (b->dims.size() == 2 && call.out_shape(0).size() == 3) {
    call.unify(a->dims[1], b->dims[0]);
    call.give(0, Dims{constant(call.out_shape(0)[0]), a->dims[0], b->dims[1]});
  }
}

// value_selecting_reduction_backward(gradient, dim, indices, sizes, keepdim)
void selecting_backward(Call& call) {
  if (call.out_count() == 0) return;
  Dims dims = dims_of_sizes(call, call.out_shape(0));
  call.set_sizes(3, dims);
  call.give(0, std::move(dims));
}

// A size of which the quantised copy has `was` elements: pairs of numbers in 4 bits, scales of
// tokens and blocks.
std::optional<Dim> part_of(const Dim& whole, std::int64_t was) {
  if (was == whole.size) return whole;
  if (!whole.scales()) return constant(was);
  if (whole.offset != 0 || was <= 0 || whole.size % was != 0) return {};
  Dim part = whole;
  part.size = was;
  part.factors.clear();
  return part;
}

// quantize(x, ...) -> (along rows, along columns, scales of both): the copy along columns and its
// scales have the last two axes the other way round.
void quantize(Call& call) {
  const Layout* x = call.in(0);
  if (!x || x->dims.size() < 2) return;
  const Argument* scaling = call.argument(2);
  const bool per_token = scaling && scaling->kind == Argument::Kind::kString &&
                         call.graph().names.text(scaling->index) == "token";
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    const auto sizes = call.out_shape(k);
    if (sizes.size() != x->dims.size()) {
      call.give(k, recorded(sizes));
      continue;
    }
    Dims from = x->dims;
    if (k % 2 == 1) std::swap(from[from.size() - 1], from[from.size() - 2]);
    if (k >= 2 && per_token) from.back() = constant(1);
    Dims dims;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const auto part = part_of(from[d], sizes[d]);
      if (!part) return call.refuse("its blocks of scales would be cut");
      dims.push_back(*part);
    }
    call.give(k, std::move(dims));
  }
}

}  // namespace

std::span<const NamedRule> expert_rules() {
  static constexpr NamedRule kRules[] = {
      {"of_fixed_size", of_fixed_size},
      {"topk", topk},
      {"one_hot", one_hot},
      {"grouped_mm", grouped_mm},
      {"quantize", quantize},
      {"selecting_backward", selecting_backward},
  };
  return kRules;
}

}  // namespace perfmodel::resize
