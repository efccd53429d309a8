#include <algorithm>

#include "call.hpp"

namespace perfmodel::resize {
namespace {

Dims constants(std::span<const std::int64_t> sizes) {
  Dims dims;
  for (std::int64_t size : sizes) dims.push_back(constant(size));
  return dims;
}

void embedding(Call& call) {
  const Layout *weight = call.in(0), *indices = call.in(1);
  if (!weight || !indices || weight->dims.size() != 2) return;
  Dims dims = indices->dims;
  dims.push_back(weight->dims[1]);
  call.give(0, std::move(dims));
}

// As large as the table, whatever the number of lookups.
void table_gradient(Call& call) {
  for (std::size_t k = 0; k < call.out_count(); ++k) call.give(k, constants(call.out_shape(k)));
}

// The number of lookups keeps its ratio to the number of bags.
void lookups_follow(Call& call, const Dim& lookups, const Dim& bags) {
  if (bags.scales() && !lookups.scales()) call.tracker().fill(lookups, bags.power, 0);
}

// (weight, indices, offsets, ..., include_last_offset at 7) -> (out, offset2bag, bag_size, max)
void embedding_bag(Call& call) {
  const Layout *weight = call.in(0), *indices = call.in(1), *offsets = call.in(2);
  if (!weight || !indices || !offsets || offsets->dims.size() != 1 || indices->dims.empty() ||
      weight->dims.size() != 2 || call.out_count() == 0) {
    return;
  }
  const bool last_too = call.out_shape(0)[0] == offsets->dims[0].size - 1;
  const Dim bags = last_too ? plus(offsets->dims[0], -1) : offsets->dims[0];
  lookups_follow(call, indices->dims[0], bags);
  call.give(0, Dims{bags, weight->dims[1]});
  for (std::size_t k = 1; k < call.out_count(); ++k) {
    Dims dims = constants(call.out_shape(k));
    if (!dims.empty() && dims[0].size > 0) {
      const Dim& wanted = k == 1 ? indices->dims[0] : bags;
      if (dims[0].size == wanted.size) dims[0] = wanted;
    }
    call.give(k, std::move(dims));
  }
}

// The gradient of a table: dense, or sparse with a row per lookup.
void embedding_bag_backward(Call& call) {
  const Layout* indices = call.in(1);
  if (!indices || call.out_count() == 0) return;
  Layout made = call.tracker().contiguous(constants(call.out_shape(0)));
  if (!indices->dims.empty()) made.non_zeros = indices->dims[0];
  call.give(0, std::move(made));
}

void index_select(Call& call) {
  const Layout *x = call.in(0), *index = call.in(2);
  const auto d = call.integer(1);
  if (!x || !index || !d || x->dims.empty()) return;
  Dims dims = x->dims;
  const auto at = static_cast<std::size_t>(axis(*d, dims.size()));
  if (at >= dims.size()) return;
  dims[at] = index->dims.empty() ? constant(1) : index->dims[0];
  call.give(0, std::move(dims));
}

void gather(Call& call) {  // (x, dim, index)
  if (const Layout* index = call.in(2)) call.give(0, Dims(index->dims));
}

// x[i, :, j]: indices side by side are replaced in place, others in front.
void index(Call& call) {
  const Layout* x = call.in(0);
  const Argument* list = call.argument(1);
  if (!x || !list || list->kind != Argument::Kind::kList || call.out_count() == 0) return;
  auto indices = call.list(1);
  for (std::size_t i = 0; i < indices.size(); ++i) {  // ":" is an undefined tensor
    const Argument& one = call.graph().elements(*list)[i];
    if (indices[i] && call.graph().tensors[one.index].dtype == DType::kUnknown) {
      indices[i] = nullptr;
    }
  }
  Dims taken, dims;
  std::size_t first = indices.size(), last = 0, count = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (!indices[i]) continue;
    first = std::min(first, i);
    last = i;
    ++count;
    const Dims& one = indices[i]->dims;
    if (one.size() > taken.size())
      taken.insert(taken.begin(), one.size() - taken.size(), constant(1));
    for (std::size_t d = 0; d < one.size(); ++d) {
      Dim& into = taken[taken.size() - one.size() + d];
      if (into.size == 1 || (one[d].scales() && !into.scales())) into = one[d];
    }
  }
  if (count == 0 || indices.size() > x->dims.size()) return;
  const bool together = last - first + 1 == count;
  if (!together) dims = taken;
  for (std::size_t d = 0; d < x->dims.size(); ++d) {
    if (together && d == first) dims.insert(dims.end(), taken.begin(), taken.end());
    if (d >= indices.size() || !indices[d]) dims.push_back(x->dims[d]);
  }
  call.give(0, std::move(dims));
}

void like_first_input(Call& call) {
  if (const Layout* x = call.in(0)) call.give(0, *x);
}

// --- sparse ------------------------------------------------------------------------------------

void sparse_tensor(Call& call) {  // (..., sizes, indices, values, ...) or (indices, values, ...)
  if (call.out_count() == 0) return;
  Layout made = call.tracker().contiguous(constants(call.out_shape(0)));
  const auto tensors = call.tensors();
  if (tensors.size() > 1 && !tensors[1]->dims.empty()) made.non_zeros = tensors[1]->dims[0];
  call.give(0, std::move(made));
}

// A part of a sparse tensor, with its entries along dimension `at`.
void sparse_part(Call& call, std::size_t at) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0) return;
  Dims dims = constants(call.out_shape(0));
  if (at >= dims.size()) return;
  if (x->non_zeros && x->non_zeros->size == dims[at].size) {
    dims[at] = *x->non_zeros;
  } else {
    dims[at] = call.open(0, at, dims[at].size);
  }
  call.give(0, std::move(dims));
}

void sparse_values(Call& call) { sparse_part(call, 0); }
void sparse_indices(Call& call) { sparse_part(call, 1); }

void non_zeros(Call& call) {
  const Layout* x = call.in(0);
  const auto outputs = call.graph().outputs(call.node());
  if (!x || !x->non_zeros || outputs.empty() || outputs[0].kind != Argument::Kind::kInt) return;
  if (outputs[0].integer == x->non_zeros->size) {
    call.tracker().set_integer(outputs[0], call.now(*x->non_zeros));
  }
}

// --- FBGEMM ------------------------------------------------------------------------------------

void table_batched_lookup(Call& call) {
  const int indices_at = call.position("indices"), offsets_at = call.position("offsets");
  if (indices_at < 0 || offsets_at < 0 || call.out_count() == 0) return;
  const Layout* indices = call.in(static_cast<std::size_t>(indices_at));
  const Layout* offsets = call.in(static_cast<std::size_t>(offsets_at));
  const auto sizes = call.out_shape(0);
  if (!indices || !offsets || offsets->dims.size() != 1 || indices->dims.size() != 1 ||
      sizes.size() != 2) {
    return;
  }
  const Dim& bounds = offsets->dims[0];
  Dim batch = call.open(0, 0, sizes[0], -1);
  if (bounds.scales()) {
    batch = {.size = sizes[0], .power = bounds.power};
  } else if (batch.scales()) {
    call.tracker().fill(bounds, batch.power, 1);
  }
  lookups_follow(call, indices->dims[0], batch);
  call.give(0, Dims{batch, constant(sizes[1])});
}

void complete_cumsum(Call& call) {
  if (const Layout* x = call.in(0); x && x->dims.size() == 1)
    call.give(0, Dims{plus(x->dims[0], 1)});
}

// (permute [T'], lengths [T, B], values [N], weights, N') -> (lengths, values, weights)
void permute_sparse(Call& call) {
  const Layout *order = call.in(0), *lengths = call.in(1), *values = call.in(2);
  if (!order || !lengths || !values || lengths->dims.size() != 2 || call.out_count() < 2 ||
      call.out_shape(1).size() != 1) {
    return;
  }
  const Dim& batch = lengths->dims[1];
  if (batch.scales()) lookups_follow(call, values->dims[0], batch);
  call.give(0, Dims{order->dims[0], batch});
  Dim moved{.size = call.out_shape(1)[0]};
  if (moved.size == values->dims[0].size) {
    moved = values->dims[0];
  } else {
    moved.power = batch.power;
  }
  if (call.integer(4) == moved.size) call.set(4, call.now(moved));
  call.give(1, Dims{moved});
  for (std::size_t k = 2; k < call.out_count(); ++k) call.give(k, constants(call.out_shape(k)));
}

// --- collectives -------------------------------------------------------------------------------

// A list of so many elements for each rank; together they are the tensor.
void renew_splits(Call& call, std::size_t at, const Layout& tensor) {
  if (tensor.dims.empty() || !tensor.dims[0].scales()) return;
  const auto splits = call.integers(at);
  std::vector<Change> renewed;
  for (std::int64_t part : splits) {
    const Dim dim{.size = part, .power = tensor.dims[0].power};
    renewed.push_back({part, call.now(dim)});
  }
  call.set_list(at, renewed);
}

void both_ways(Call& call, const Layout& a, const Layout& b) {
  if (a.dims.empty() || b.dims.empty()) return;
  if (a.dims[0].scales()) call.tracker().fill(b.dims[0], a.dims[0].power, 0);
  if (b.dims[0].scales()) call.tracker().fill(a.dims[0], b.dims[0].power, 0);
}

// c10d::alltoall_base_(output, input, group, output splits, input splits, timeout)
void all_to_all(Call& call) {
  const Layout *output = call.in(0), *input = call.in(1);
  if (!output || !input) return;
  both_ways(call, *output, *input);
  renew_splits(call, 3, *output);
  renew_splits(call, 4, *input);
}

void comm_record(Call& call) {
  std::size_t at = 0;
  while (at < call.size() && call.argument(at)->kind != Argument::Kind::kString) ++at;
  const Layout* input = call.in(0);
  if (!input && !call.list(0).empty()) input = call.list(0)[0];
  const Layout* output = input;
  for_each_tensor(call.graph(), call.graph().outputs(call.node()), [&](const Tensor& tensor) {
    // Received into a tensor that was there before.
    if (const Layout* known = call.tracker().current(tensor)) output = known;
  });
  if (output) call.give(0, *output);
  if (!input || at >= call.size()) return;
  renew_splits(call, at + 1, *input);
  if (output) renew_splits(call, at + 2, *output);
}

}  // namespace

std::span<const NamedRule> lookup_rules() {
  static constexpr NamedRule kRules[] = {
      {"embedding", embedding},
      {"table_gradient", table_gradient},
      {"embedding_bag", embedding_bag},
      {"embedding_bag_backward", embedding_bag_backward},
      {"index_select", index_select},
      {"gather", gather},
      {"index", index},
      {"like_first_input", like_first_input},
      {"sparse_tensor", sparse_tensor},
      {"sparse_values", sparse_values},
      {"sparse_indices", sparse_indices},
      {"non_zeros", non_zeros},
      {"table_batched_lookup", table_batched_lookup},
      {"complete_cumsum", complete_cumsum},
      {"permute_sparse", permute_sparse},
      {"all_to_all", all_to_all},
      {"comm_record", comm_record},
  };
  return kRules;
}

}  // namespace perfmodel::resize
