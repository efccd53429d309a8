#include <algorithm>

#include "call.hpp"

namespace perfmodel::resize {

// Operands are broadcast against each other; every output of the resulting shape gets it.
void same_shape(Call& call) {
  if (call.out_count() == 0) return;
  const auto tensors = call.tensors();
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    const auto sizes = call.out_shape(k);
    Dims dims(sizes.size());
    bool whole = true;
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const Dim* best = nullptr;
      for (const Layout* tensor : tensors) {
        const std::size_t back = sizes.size() - d;
        if (back > tensor->dims.size()) continue;
        const Dim& dim = tensor->dims[tensor->dims.size() - back];
        if (dim.size != sizes[d]) continue;
        if (best && dim.size > 1) call.unify(*best, dim);
        if (!best || (dim.scales() && !best->scales())) best = &dim;
      }
      whole &= best != nullptr;
      if (best) dims[d] = *best;
    }
    if (!whole) continue;
    Layout made = call.tracker().contiguous(std::move(dims));
    if (call.out(k).storage_id == 0) {  // a sparse tensor has the entries of what is added to it
      for (const Layout* tensor : tensors) {
        if (tensor->non_zeros) made.non_zeros = tensor->non_zeros;
      }
    }
    call.give(k, std::move(made));
  }
}

namespace {

double elements(const Dims& dims) {
  double count = 1;
  for (const Dim& dim : dims) count *= static_cast<double>(dim.size);
  return count;
}
Real new_elements(const Call& call, const Dims& dims) {
  Real count = 1;
  for (const Dim& dim : dims) count *= Real(call.now(dim));
  return count;
}

// Gradients of means are divided by the number of elements that went into one output: of
// aten::mean, and of losses, which are means of everything.
void divide(Call& call) {
  same_shape(call);
  const std::int32_t forward = call.tracker().forward_op(call.index());
  if (forward < 0 || !call.argument(1)) return;
  const ExecutionGraph& graph = call.graph();
  const Node& op = graph.node(forward);
  const std::string_view name = graph.name(op);
  const bool loss = name.find("loss") != name.npos || name.find("entropy") != name.npos;
  if (!loss && name != "aten::mean") return;
  double was = 1;
  Real now = 1;
  const auto inputs = graph.inputs(op), outputs = graph.outputs(op);
  if (inputs.empty() || inputs[0].kind != Argument::Kind::kTensor) return;
  if (const Layout* x = call.tracker().layout_of(graph.tensors[inputs[0].index])) {
    was = elements(x->dims);
    now = new_elements(call, x->dims);
  }
  if (!loss && !outputs.empty() && outputs[0].kind == Argument::Kind::kTensor) {
    if (const Layout* y = call.tracker().layout_of(graph.tensors[outputs[0].index])) {
      was /= elements(y->dims);
      now /= new_elements(call, y->dims);
    }
  }
  const Argument& by = *call.argument(1);
  if (by.kind == Argument::Kind::kInt && static_cast<double>(by.integer) == was) {
    call.tracker().set_integer(by, rounded(now));
  } else if (by.kind == Argument::Kind::kDouble && by.real == was) {
    call.tracker().set_real(by, now);
  }
}

// Output k is like the k-th of these tensors.
template <std::size_t... kAt>
void like(Call& call) {
  std::size_t k = 0;
  const auto one = [&](std::size_t at) {
    if (const Layout* x = call.in(at)) call.give(k, Dims(x->dims));
    ++k;
  };
  (one(kAt), ...);
  for (; k < call.out_count(); ++k) {  // statistics, gradients of parameters
    Dims dims;
    for (std::int64_t size : call.out_shape(k)) dims.push_back(constant(size));
    call.give(k, std::move(dims));
  }
}

// Gradients of (input, weight, bias) from (gradient, input, weight, ...).
void like_second(Call& call) { like<1, 2>(call); }
void like_first(Call& call) { like<0>(call); }

void scalar(Call& call) {
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    if (call.out_shape(k).empty()) call.give(k, Dims{});
  }
}

void mm(Call& call) {
  const Layout *a = call.in(0), *b = call.in(1);
  if (!a || !b || a->dims.size() != 2 || b->dims.size() != 2) return;
  call.unify(a->dims[1], b->dims[0]);
  call.give(0, Dims{a->dims[0], b->dims[1]});
}

void addmm(Call& call) {
  const Layout *bias = call.in(0), *a = call.in(1), *b = call.in(2);
  if (!bias || !a || !b || a->dims.size() != 2 || b->dims.size() != 2) return;
  call.unify(a->dims[1], b->dims[0]);
  call.give(0, Dims{a->dims[0], b->dims[1]});
}

// Without MKL a CPU multiplies the matrices one by one, through a view of each.
bool one_by_one(const Call& call) {
  for (std::int32_t child : call.graph().children(call.node())) {
    const Node& node = call.graph().node(child);
    if (call.graph().name(node) == "aten::select") return true;
  }
  return false;
}

void batched(Call& call, const Layout* a, const Layout* b) {
  if (!a || !b || a->dims.size() != 3 || b->dims.size() != 3) return;
  if ((a->dims[0].scales() || b->dims[0].scales()) && one_by_one(call)) {
    call.refuse("it runs one product per matrix here, whose number would change; retarget first");
  }
  call.unify(a->dims[0], b->dims[0]);
  call.unify(a->dims[2], b->dims[1]);
  const Dim& batch = a->dims[0].scales() || !b->dims[0].scales() ? a->dims[0] : b->dims[0];
  call.give(0, Dims{batch, a->dims[1], b->dims[2]});
}
void bmm(Call& call) { batched(call, call.in(0), call.in(1)); }
void baddbmm(Call& call) { batched(call, call.in(1), call.in(2)); }

// matmul, linear and einsum without ops below them: rows of the first, columns of the second.
void matmul(Call& call) {
  const Layout *a = call.in(0), *b = call.in(1);
  if (call.node().children_count > 0 || !a || !b || call.out_count() == 0) return;
  const std::size_t rank = call.out_shape(0).size();
  if (a->dims.size() != rank || b->dims.empty() || rank < 1) return;
  Dims dims = a->dims;
  if (b->dims.size() == 1) return;
  dims.back() = call.name() == "aten::linear" ? b->dims[0] : b->dims.back();
  call.give(0, std::move(dims));
}

void mv(Call& call) {
  if (const Layout* a = call.in(0); a && !a->dims.empty()) call.give(0, Dims{a->dims[0]});
}

void cat(Call& call) {
  const auto parts = call.list(0);
  if (parts.empty() || call.out_count() == 0) return;
  const std::size_t rank = call.out_shape(0).size();
  const auto at = static_cast<std::size_t>(axis(call.integer(1).value_or(0), rank));
  const Layout* first = nullptr;
  Dim sum = constant(0);
  bool mixed = false;
  Dims dims;
  for (const Layout* part : parts) {
    if (!part || part->dims.size() != rank || at >= rank) continue;  // an empty one of any rank
    if (!first) {
      first = part;
      dims = part->dims;
    }
    for (std::size_t d = 0; d < rank; ++d) {
      if (d == at) continue;
      call.unify(dims[d], part->dims[d]);
      if (part->dims[d].scales() && !dims[d].scales()) dims[d] = part->dims[d];
    }
    const Dim& dim = part->dims[at];
    mixed |= sum.power != 0 && dim.power != 0 && sum.power != dim.power;
    sum.size += dim.size;
    if (dim.scales()) {
      if (!sum.scales()) sum.offset = sum.size - dim.size;
      sum.power = dim.power;
      sum.offset += dim.offset;
    } else if (sum.scales()) {
      sum.offset += dim.size;
    }
    if (dim.hole >= 0 && sum.hole < 0) {
      sum.hole = dim.hole;
      sum.hole_add = dim.hole_add;
    } else {
      sum.hole_add += dim.size;
    }
  }
  if (!first) return;
  if (sum.scales()) sum.hole = -1;
  if (mixed) return call.refuse("it joins sizes that change in different powers");
  dims[at] = sum;
  call.give(0, std::move(dims));
}

void stack(Call& call) {
  const auto parts = call.list(0);
  if (parts.empty() || !parts[0] || call.out_count() == 0) return;
  Dims dims = parts[0]->dims;
  for (const Layout* part : parts) {
    if (!part || part->dims.size() != dims.size()) return;
    for (std::size_t d = 0; d < dims.size(); ++d) {
      call.unify(dims[d], part->dims[d]);
      if (part->dims[d].scales() && !dims[d].scales()) dims[d] = part->dims[d];
    }
  }
  const auto at = static_cast<std::size_t>(axis(call.integer(1).value_or(0), dims.size() + 1));
  if (at > dims.size()) return;
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at),
              constant(static_cast<std::int64_t>(parts.size())));
  call.give(0, std::move(dims));
}

// Dimensions by the argument at `axes_at`; none: all. A dimension that is kept has size 1.
void reduced(Call& call, std::size_t axes_at) {
  const Layout* x = call.in(0);
  if (!x) return;
  const std::size_t rank = x->dims.size();
  std::vector<bool> gone(rank, false);
  const Argument* axes = call.argument(axes_at);
  const bool some = axes && (axes->kind == Argument::Kind::kInt ||
                             (axes->kind == Argument::Kind::kList && axes->count > 0));
  for (std::int64_t d : call.integers(axes_at)) {
    const auto at = static_cast<std::size_t>(axis(d, rank));
    if (at < rank) gone[at] = true;
  }
  if (!some) gone.assign(rank, true);
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    Dims dims;
    const bool keep = call.out_shape(k).size() == rank;
    for (std::size_t d = 0; d < rank; ++d) {
      if (!gone[d]) dims.push_back(x->dims[d]);
      if (gone[d] && keep) dims.push_back(constant(1));
    }
    call.give(k, std::move(dims));
  }
}
void reduce(Call& call) { reduced(call, 1); }
void reduce_norm(Call& call) { reduced(call, 2); }

// Batch and channels come first; later dimensions follow the input's if their sizes are equal.
void over_places(Call& call, const Layout& x, std::optional<Dim> channels) {
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    const auto sizes = call.out_shape(k);
    if (sizes.size() != x.dims.size() || sizes.size() < 3) continue;
    Dims dims = {x.dims[0], channels.value_or(x.dims[1])};
    for (std::size_t d = 2; d < sizes.size(); ++d) {
      if (x.dims[d].scales() && x.dims[d].size != sizes[d]) {
        return call.refuse("its windows do not map every place to one place");
      }
      dims.push_back(x.dims[d].scales() ? x.dims[d] : constant(sizes[d]));
    }
    call.give(k, std::move(dims));
  }
}

void convolution(Call& call) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0 || call.out_shape(0).size() < 3) return;
  over_places(call, *x, constant(call.out_shape(0)[1]));
}

void pool(Call& call) {
  if (const Layout* x = call.in(0)) over_places(call, *x, {});
}

// Like the first input; statistics have its leading sizes.
void normalised(Call& call) {
  const Layout* x = call.in(0);
  if (!x) return;
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    Dims dims;
    const auto sizes = call.out_shape(k);
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      const bool same = d < x->dims.size() && x->dims[d].size == sizes[d];
      dims.push_back(same ? x->dims[d] : constant(sizes[d]));
    }
    call.give(k, std::move(dims));
  }
}

void layer_norm_backward(Call& call) { like<1>(call); }

void group_norm(Call& call) {  // (input, weight, bias, N, C, HxW, groups, eps)
  normalised(call);
  if (const Layout* x = call.in(0); x && !x->dims.empty() && call.integer(3) == x->dims[0].size) {
    call.set(3, call.now(x->dims[0]));
  }
}

void nll_loss(Call& call) {
  const Layout *x = call.in(0), *target = call.in(1);
  if (!x || !target || x->dims.empty()) return;
  if (!target->dims.empty()) call.unify(x->dims[0], target->dims[0]);
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    const bool scalar_out = call.out_shape(k).empty();
    call.give(k, scalar_out ? Dims{} : target->dims);
  }
}

// Losses of equal shapes, reduced or not.
void pointwise_loss(Call& call) {
  const Layout *x = call.in(0), *target = call.in(1);
  if (!x) return;
  if (target && target->dims.size() == x->dims.size()) {
    for (std::size_t d = 0; d < x->dims.size(); ++d) call.unify(x->dims[d], target->dims[d]);
  }
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    call.give(k, call.out_shape(k).empty() ? Dims{} : x->dims);
  }
}

void pointwise_loss_backward(Call& call) {  // (gradient, input, target, ...)
  const Layout *x = call.in(1), *target = call.in(2);
  if (!x) return;
  if (target && target->dims.size() == x->dims.size()) {
    for (std::size_t d = 0; d < x->dims.size(); ++d) call.unify(x->dims[d], target->dims[d]);
  }
  call.give(0, Dims(x->dims));
}

constexpr std::int64_t kLongestList = std::int64_t{1} << 24;

// Targets [N, S] and lengths [N], as tensors or as lists of numbers.
void ctc_lengths(Call& call, const Dim& steps, const Dim& batch) {
  for (std::size_t at = 0; at < call.size(); ++at) {
    const Layout* x = call.in(at);
    if (x && !x->dims.empty() && x->dims.size() < 3 && x->dims[0].size == batch.size) {
      call.unify(x->dims[0], batch);
    }
    const auto lengths = call.integers(at);
    const bool is_list = call.argument(at)->kind == Argument::Kind::kList;
    if (!is_list || lengths.empty() || std::ssize(lengths) != batch.size) continue;
    const Number samples = call.now(batch);
    if (samples < 0 || kLongestList < samples) {
      return call.refuse("its list of lengths would be too long");
    }
    std::vector<Number> now;
    for (std::int64_t length : lengths) {
      now.push_back(length == steps.size ? call.now(steps) : Number(length));
    }
    const std::vector<Number> was(lengths.begin(), lengths.end());
    if (samples == std::ssize(was) && now == was) continue;
    // More samples are like those there are.
    call.tracker().set_list(*call.argument(at), samples, std::move(now));
  }
}

void ctc_loss(Call& call) {  // (log_probs [T, N, C], targets, ...)
  const Layout* x = call.in(0);
  if (!x || x->dims.size() != 3) return;
  const Dim &steps = x->dims[0], &batch = x->dims[1];
  ctc_lengths(call, steps, batch);
  if (call.out_count() == 0 || call.out_shape(0).size() != 1) return;  // the whole loss, its choice
  call.give(0, Dims{batch});
  if (call.out_count() < 2 || call.out_shape(1).size() != 3) return;
  if (call.name() == "aten::_cudnn_ctc_loss") {
    call.give(1, Dims(x->dims));
  } else {
    call.give(1, Dims{batch, steps, constant(call.out_shape(1)[2])});
  }
}

void ctc_loss_backward(Call& call) {  // (gradient, log_probs, targets, ...)
  const Layout* x = call.in(1);
  if (!x || x->dims.size() != 3) return;
  ctc_lengths(call, x->dims[0], x->dims[1]);
  call.give(0, Dims(x->dims));
}

void attention(Call& call) {
  const Layout *query = call.in(0), *value = call.in(2);
  if (!query || !value || query->dims.size() != 4 || value->dims.size() != 4) return;
  Dims dims = query->dims;
  dims[3] = value->dims[3];
  call.give(0, dims);
  for (std::size_t k = 1; k < call.out_count(); ++k) {
    const auto sizes = call.out_shape(k);
    if (sizes.size() == 3) {  // log-sum-exp of each row, padded by some kernels
      Dim rows = query->dims[2];
      if (rows.size != sizes[2]) {
        const bool none = sizes[2] == 0;  // not asked for, as under no_grad
        if (rows.scales() && !none) return call.refuse("rows are padded, which is not followed");
        rows = constant(sizes[2]);
      }
      call.give(k, Dims{query->dims[0], query->dims[1], rows});
    } else {
      Dims other;
      for (std::int64_t size : sizes) other.push_back(constant(size));
      call.give(k, std::move(other));
    }
  }
  const auto outputs = call.graph().outputs(call.node());
  for (const Argument& output : outputs) {  // longest sequences
    if (output.kind != Argument::Kind::kInt) continue;
    const Layout* key = call.in(1);
    for (const Layout* side : {query, key}) {
      if (side && side->dims.size() == 4 && side->dims[2].scales() &&
          output.integer == side->dims[2].size && output.integer > 1) {
        call.tracker().set_integer(output, call.now(side->dims[2]));
        break;
      }
    }
  }
}

void attention_backward(Call& call) {  // (gradient, query, key, value, ...)
  const Layout *query = call.in(1), *key = call.in(2);
  for (std::size_t at : {std::size_t{7}, std::size_t{8}, std::size_t{9}, std::size_t{10}}) {
    const auto length = call.integer(at);
    if (!length || *length <= 1) continue;
    for (const Layout* side : {query, key}) {
      if (side && side->dims.size() == 4 && side->dims[2].scales() &&
          side->dims[2].size == *length) {
        call.set(at, call.now(side->dims[2]));
        break;
      }
    }
  }
  like<1, 2, 3>(call);
}

// Kernels of attention on [N, S, H, D] take the longest query and key as numbers, and return them.
void attention_lengths(Call& call, const Layout* query, const Layout* key) {
  if (!query || !key || query->dims.size() != 4 || key->dims.size() != 4) return;
  const auto set = [&](std::string_view name, const Dim& length) {
    const int at = call.position(name);
    if (at < 0 || call.integer(static_cast<std::size_t>(at)) != length.size) return;
    call.set(static_cast<std::size_t>(at), call.now(length));
  };
  for (std::string_view name : {"max_q", "max_seqlen_q"}) set(name, query->dims[1]);
  for (std::string_view name : {"max_k", "max_seqlen_k"}) set(name, key->dims[1]);
  const Layout* side = query;
  for (const Argument& output : call.graph().outputs(call.node())) {
    if (output.kind != Argument::Kind::kInt) continue;
    if (output.integer == side->dims[1].size) {
      call.tracker().set_integer(output, call.now(side->dims[1]));
    }
    side = key;
  }
}

void attention_kernel(Call& call) {  // (query, key, value, ...) -> (output, logsumexp, ...)
  attention_lengths(call, call.in(0), call.in(1));
}

// (gradient, query, key, value, ...) -> gradients of the three
void attention_kernel_backward(Call& call) {
  attention_lengths(call, call.in(1), call.in(2));
  like<1, 2, 3>(call);
}

// aten::_cudnn_rnn(input, weight[], stride0, weight_buf, hx, cx, mode, hidden, proj, layers,
// batch_first, ...) -> (output, hy, cy, reserve, weight_buf)
void recurrent(Call& call) {
  const Layout *x = call.in(0), *state = call.in(4);
  if (!x || x->dims.size() != 3 || call.out_count() == 0) return;
  if (!call.flag(10)) call.tracker().note_time_first(x->dims[0]);
  const Dim& batch = x->dims[call.flag(10) ? 0 : 1];
  for (const Layout* of : {state, call.in(5)}) {
    if (of && of->dims.size() == 3) call.unify(of->dims[1], batch);
  }
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    const auto sizes = call.out_shape(k);
    if (k == 0 && sizes.size() == 3) {
      call.give(k, Dims{x->dims[0], x->dims[1], constant(sizes[2])});
    } else if (sizes.size() == 3) {
      call.give(k, Dims{constant(sizes[0]), batch, constant(sizes[2])});
    } else if (k == 3 && sizes.size() == 1 && sizes[0] > 0) {  // kept for the backward pass
      call.give(k, Dims{{.size = sizes[0], .power = x->dims[0].power + x->dims[1].power}});
    } else {
      Dims dims;
      for (std::int64_t size : sizes) dims.push_back(constant(size));
      call.give(k, std::move(dims));
    }
  }
}

// aten::lstm(input, hx, params, biases, layers, dropout, train, bidirectional, batch_first): the
// ops below it follow the sizes.
void recurrent_layers(Call& call) {
  const Layout* x = call.in(0);
  if (x && x->dims.size() == 3 && !call.flag(8)) call.tracker().note_time_first(x->dims[0]);
}

// (input, weight[], stride0, weight_buf, hx, cx, output, ...) -> (input, hx, cx, weights)
void recurrent_backward(Call& call) { like<0, 4, 5>(call); }

// (input gates, hidden gates, cx, ...) -> (hy, cy, workspace)
void lstm_cell(Call& call) { like<2, 2, 0>(call); }
// (grad_hy, grad_cy, cx, cy, workspace, has_bias) -> (gates, cx, bias)
void lstm_cell_backward(Call& call) { like<4, 2>(call); }

// (input gates, hidden gates, hx, ...) -> (hy, workspace)
void gru_cell(Call& call) {
  const Layout* state = call.in(2);
  if (!state || state->dims.size() != 2) return;
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    if (call.out_shape(k).size() == 2) {
      call.give(k, Dims{state->dims[0], constant(call.out_shape(k)[1])});
    }
  }
}
void gru_cell_backward(Call& call) {  // (grad_hy, workspace, has_bias) -> (ig, hg, hx, biases)
  const Layout* state = call.in(0);
  if (!state || state->dims.size() != 2) return;
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    Dims dims;
    for (std::int64_t size : call.out_shape(k)) dims.push_back(constant(size));
    if (dims.size() == 2) dims[0] = state->dims[0];
    call.give(k, std::move(dims));
  }
}

// Lists of tensors, element by element.
void foreach (Call& call) {
  const auto first = call.list(0);
  for (std::size_t at = 1; at < call.size(); ++at) {
    const auto other = call.list(at);
    if (other.size() != first.size()) continue;
    for (std::size_t k = 0; k < first.size(); ++k) {
      if (!first[k] || !other[k] || first[k]->dims.size() != other[k]->dims.size()) continue;
      for (std::size_t d = 0; d < first[k]->dims.size(); ++d) {
        call.unify(first[k]->dims[d], other[k]->dims[d]);
      }
    }
  }
  for (std::size_t k = 0; k < call.out_count() && k < first.size(); ++k) {
    if (first[k]) call.give(k, Dims(first[k]->dims));
  }
}

void repeat(Call& call) {
  const Layout* x = call.in(0);
  const auto times = call.integers(1);
  if (!x || call.out_count() == 0 || times.size() < x->dims.size()) return;
  Dims dims;
  for (std::size_t d = 0; d < times.size(); ++d) {
    const std::size_t lead = times.size() - x->dims.size();
    Dim dim = d < lead ? constant(1) : x->dims[d - lead];
    if (times[d] != 1) {
      if (dim.offset != 0) return call.refuse("it repeats a size that is no multiple");
      const bool plain = dim.size == 1 && !dim.scales();
      dim.size *= times[d];
      dim.factors.clear();
      if (plain) {
        dim = call.open(0, d, times[d]);
        if (dim.scales()) {
          call.tracker().set_integer(call.graph().elements(*call.argument(1))[d], call.now(dim));
        }
      }
    }
    dims.push_back(dim);
  }
  call.give(0, std::move(dims));
}

}  // namespace

std::span<const NamedRule> compute_rules() {
  static constexpr NamedRule kRules[] = {
      {"same_shape", same_shape},
      {"recurrent_layers", recurrent_layers},
      {"divide", divide},
      {"mm", mm},
      {"addmm", addmm},
      {"bmm", bmm},
      {"baddbmm", baddbmm},
      {"matmul", matmul},
      {"mv", mv},
      {"scalar", scalar},
      {"cat", cat},
      {"stack", stack},
      {"repeat", repeat},
      {"foreach", foreach},
      {"reduce", reduce},
      {"reduce_norm", reduce_norm},
      {"convolution", convolution},
      {"like_second", like_second},
      {"pool", pool},
      {"like_first", like_first},
      {"normalised", normalised},
      {"layer_norm_backward", layer_norm_backward},
      {"group_norm", group_norm},
      {"nll_loss", nll_loss},
      {"pointwise_loss", pointwise_loss},
      {"pointwise_loss_backward", pointwise_loss_backward},
      {"ctc_loss", ctc_loss},
      {"ctc_loss_backward", ctc_loss_backward},
      {"attention", attention},
      {"attention_kernel", attention_kernel},
      {"attention_kernel_backward", attention_kernel_backward},
      {"attention_backward", attention_backward},
      {"recurrent", recurrent},
      {"recurrent_backward", recurrent_backward},
      {"lstm_cell", lstm_cell},
      {"lstm_cell_backward", lstm_cell_backward},
      {"gru_cell", gru_cell},
      {"gru_cell_backward", gru_cell_backward},
  };
  return kRules;
}

}  // namespace perfmodel::resize
