#include <algorithm>
#include <bit>

#include "call.hpp"

namespace perfmodel::resize {
namespace {

Layout view_of(const Layout& base, Dims dims, std::vector<Change> strides) {
  return {.dims = std::move(dims),
          .strides = std::move(strides),
          .offset = base.offset,
          .external = base.external};
}

void same_layout(Call& call) {
  if (const Layout* x = call.in(0)) call.give(0, *x);
}

void permuted(Call& call, const Layout& x, const std::vector<std::size_t>& order) {
  Layout made = view_of(x, {}, {});
  made.non_zeros = x.non_zeros;
  for (std::size_t d : order) {
    made.dims.push_back(x.dims[d]);
    made.strides.push_back(x.strides[d]);
  }
  call.give(0, std::move(made));
}

void transpose(Call& call) {
  const Layout* x = call.in(0);
  if (!x) return;
  std::vector<std::size_t> order(x->dims.size());
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = d;
  const auto a = call.integer(1), b = call.integer(2);
  if (a && b && !order.empty()) {
    const auto from = static_cast<std::size_t>(axis(*a, order.size()));
    const auto to = static_cast<std::size_t>(axis(*b, order.size()));
    if (from >= order.size() || to >= order.size()) return;
    std::swap(order[from], order[to]);
  } else {  // t, numpy_T, mT
    std::reverse(order.begin(), order.end());
  }
  permuted(call, *x, order);
}

void permute(Call& call) {
  const Layout* x = call.in(0);
  const auto dims = call.integers(1);
  if (!x || dims.size() != x->dims.size()) return;
  std::vector<std::size_t> order;
  for (std::int64_t d : dims) order.push_back(static_cast<std::size_t>(axis(d, dims.size())));
  for (std::size_t d : order) {
    if (d >= order.size()) return;
  }
  permuted(call, *x, order);
}

// An index into a dimension: the last stays the last, a multiple of the size that changes stays
// that multiple, all else keeps its distance from the start.
Dim index_in(const Call& call, const Dim& dim, std::int64_t index, std::int64_t was) {
  (void)call;
  Dim made = constant(index);
  if (!dim.scales() || index == 0) return made;
  if (index == dim.size) return dim;
  if (dim.power != 1 || dim.offset > 1 || dim.offset < 0) return made;
  if (index % was == 0 && dim.size / was > 1) {
    made.power = 1;
  } else if (index % was == dim.offset && dim.offset == 1 && dim.size / was > 1) {
    made.power = 1;
    made.offset = 1;
  } else if (index == dim.size - 1) {
    made.power = 1;
    made.offset = dim.offset - 1;
  }
  return made;
}

Dim difference(const Dim& end, const Dim& start, const Dim& whole) {
  if (start.size == 0 && end.size == whole.size) return whole;
  Dim made = constant(end.size - start.size);
  if (end.scales() || start.scales()) {
    made.power = 1;
    made.offset = end.offset - start.offset;
    if (!end.scales()) made.offset = 0, made.power = 0;
    if (!start.scales()) made.offset = end.offset - start.size;
    if (made.size == made.offset) made.power = 0, made.offset = 0;
  }
  return made;
}

void select(Call& call) {
  const Layout* x = call.in(0);
  const auto d = call.integer(1), i = call.integer(2);
  if (!x || !d || !i || x->dims.empty()) return;
  const auto at = static_cast<std::size_t>(axis(*d, x->dims.size()));
  if (at >= x->dims.size()) return;
  const Dim& dim = x->dims[at];
  const bool from_end = *i < 0;
  const Dim index = index_in(call, dim, from_end ? *i + dim.size : *i, call.tracker().was());
  const Number now = from_end ? call.now(dim) + *i : call.now(index);
  if (!from_end) call.set(2, now);
  Layout made = *x;
  made.non_zeros.reset();
  made.offset.was += index.size * x->strides[at].was;
  made.offset.now += now * x->strides[at].now;
  made.dims.erase(made.dims.begin() + static_cast<std::ptrdiff_t>(at));
  made.strides.erase(made.strides.begin() + static_cast<std::ptrdiff_t>(at));
  call.give(0, std::move(made));
}

// Elements [start, end) of a dimension.
Layout part_of(Call& call, const Layout& x, std::size_t at, const Dim& start, Dim size) {
  Layout made = x;
  made.dims[at] = std::move(size);
  made.offset.was += start.size * x.strides[at].was;
  made.offset.now += call.now(start) * x.strides[at].now;
  return made;
}

void slice(Call& call) {
  const Layout* x = call.in(0);
  const auto d = call.integer(1), from = call.integer(2), to = call.integer(3),
             step = call.integer(4);
  if (!x || x->dims.empty() || step.value_or(1) < 1) return;
  const auto at = static_cast<std::size_t>(axis(d.value_or(0), x->dims.size()));
  if (at >= x->dims.size()) return;
  const Dim dim = x->dims[at];
  const auto clamped = [&](std::int64_t i) {
    return std::clamp<std::int64_t>(i < 0 ? i + dim.size : i, 0, dim.size);
  };
  const std::int64_t was = call.tracker().was();
  const Dim start = index_in(call, dim, clamped(from.value_or(0)), was);
  const std::int64_t last = to.value_or(dim.size);
  const Dim end = index_in(call, dim, clamped(last), was);
  Dim size = difference(end, start, dim);
  if (step.value_or(1) == 1) {
    // Python's own number: [:S] of a longer table.
    const bool cut = !dim.scales() && last >= 0 && last < dim.size;
    const auto known = call.tracker().promised(call.out(0));
    if (cut && known && at < known->dims.size()) {
      size = known->dims[at];  // one of several pieces
    } else if (cut && call.out_count() == 1 && call.out_shape(0).size() == x->dims.size() &&
               clamped(from.value_or(0)) == 0) {
      size = call.open(0, at, call.out_shape(0)[at]);
      if (size.scales()) call.set(3, call.now(size));
    }
  } else {
    size.size = (size.size + *step - 1) / *step;
    if (size.scales()) size.offset = 0;
  }
  if (from && *from > 0) call.set(2, call.now(start));
  if (to && *to > 0 && *to <= dim.size && end.scales()) call.set(3, call.now(end));
  Layout made = part_of(call, *x, at, start, size);
  if (step.value_or(1) != 1) {
    made.strides[at].was *= *step;
    made.strides[at].now *= *step;
  }
  call.give(0, std::move(made));
}

void narrow(Call& call) {
  const Layout* x = call.in(0);
  const auto d = call.integer(1), from = call.integer(2), length = call.integer(3);
  if (!x || !d || !from || !length || x->dims.empty()) return;
  const auto at = static_cast<std::size_t>(axis(*d, x->dims.size()));
  if (at >= x->dims.size()) return;
  const std::int64_t was = call.tracker().was();
  const Dim dim = x->dims[at];
  Dim start = index_in(call, dim, *from, was);
  const Dim end = index_in(call, dim, *from + *length, was);
  Dim size = difference(end, start, dim);
  // The pieces of a concatenation tell their places better than any number.
  const auto known = call.tracker().promised(call.out(0));
  if (known && at < known->dims.size()) size = known->dims[at];
  call.set(2, call.now(start));
  call.set(3, call.now(size));
  call.give(0, part_of(call, *x, at, start, size));
}

// Several outputs along one dimension.
void split(Call& call) {
  const Layout* x = call.in(0);
  if (!x || x->dims.empty() || call.out_count() == 0) return;
  const bool by_size = call.argument(1) && call.argument(1)->kind == Argument::Kind::kInt &&
                       call.name() != "aten::chunk";
  const auto d = call.integer(2);
  const auto at = static_cast<std::size_t>(axis(d.value_or(0), x->dims.size()));
  if (at >= x->dims.size()) return;
  const Dim& dim = x->dims[at];
  Dim start = constant(0);
  std::vector<Change> sizes;
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    if (call.out_shape(k).size() != x->dims.size()) return;
    Dim size = constant(call.out_shape(k)[at]);
    if (size.size == dim.size) {
      size = dim;
    } else if (dim.scales()) {
      if (dim.offset != 0) return call.refuse("parts of a size that is no multiple");
      size.power = dim.power;
    } else if (dim.hole >= 0) {
      size = call.open(k, at, size.size, dim.hole);
      if (size.scales()) call.tracker().fill(dim, size.power, 0);
    }
    sizes.push_back({size.size, call.now(size)});
    call.give(k, part_of(call, *x, at, start, size));
    start.size += size.size;
    if (size.scales()) start.power = size.power;
  }
  if (by_size && sizes.front().was == *call.integer(1)) call.set(1, sizes.front().now);
  call.set_list(1, sizes);
}

void unbind(Call& call) {
  const Layout* x = call.in(0);
  if (!x || x->dims.empty()) return;
  const auto at = static_cast<std::size_t>(axis(call.integer(1).value_or(0), x->dims.size()));
  if (at >= x->dims.size()) return;
  // A loop over the steps of [steps, batch, width], if not over what a detector finds in pictures.
  if (at == 0 && x->dims.size() == 3) call.tracker().note_time_first(x->dims[0], 3);
  if (x->dims[at].scales()) return call.refuse("the number of its outputs would change");
  for (std::size_t k = 0; k < call.out_count(); ++k) {
    Layout made = *x;
    made.offset.was += static_cast<std::int64_t>(k) * x->strides[at].was;
    made.offset.now += static_cast<std::int64_t>(k) * x->strides[at].now;
    made.dims.erase(made.dims.begin() + static_cast<std::ptrdiff_t>(at));
    made.strides.erase(made.strides.begin() + static_cast<std::ptrdiff_t>(at));
    call.give(k, std::move(made));
  }
}

void squeeze(Call& call) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0) return;
  auto axes = call.integers(1);
  for (std::int64_t& a : axes) a = axis(a, x->dims.size());
  const std::size_t gone = x->dims.size() - call.out_shape(0).size();
  Layout made = view_of(*x, {}, {});
  std::vector<Left> sizes;
  std::size_t left = gone;
  bool other = false;
  for (std::size_t d = 0; d < x->dims.size(); ++d) {
    const Dim& dim = x->dims[d];
    const bool named = axes.empty() || std::find(axes.begin(), axes.end(),
                                                 static_cast<std::int64_t>(d)) != axes.end();
    const bool dropped = dim.size == 1 && named && left > 0;
    const bool drops = named && call.now(dim) == 1;
    other |= dim.scales() && dropped != drops;
    if (!(dim.scales() ? drops : dropped)) sizes.push_back({call.now(dim), x->strides[d].now});
    if (dropped) {
      --left;
    } else {
      made.dims.push_back(dim);
      made.strides.push_back(x->strides[d]);
    }
  }
  if (other) made.squeezed = std::move(sizes);
  call.give(0, std::move(made));
}

void unsqueeze(Call& call) {
  const Layout* x = call.in(0);
  const auto d = call.integer(1);
  if (!x || !d) return;
  const auto at = static_cast<std::size_t>(axis(*d, x->dims.size() + 1));
  if (at > x->dims.size()) return;
  Layout made = *x;
  Change stride = {1, 1};
  if (at < x->dims.size()) {
    stride = {x->strides[at].was * x->dims[at].size, x->strides[at].now * call.now(x->dims[at])};
  }
  made.dims.insert(made.dims.begin() + static_cast<std::ptrdiff_t>(at), constant(1));
  made.strides.insert(made.strides.begin() + static_cast<std::ptrdiff_t>(at), stride);
  call.give(0, std::move(made));
}

void expand(Call& call) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0) return;
  const auto sizes = call.out_shape(0);
  if (sizes.size() < x->dims.size()) return;
  const Layout* other = call.in(1);  // expand_as
  Dims dims = other ? other->dims : dims_of_sizes(call, sizes);
  if (dims.size() != sizes.size()) return;
  const std::size_t lead = sizes.size() - x->dims.size();
  std::vector<Change> strides(sizes.size());
  const auto asked = call.integers(1);
  for (std::size_t d = lead; d < sizes.size(); ++d) {
    const Dim& from = x->dims[d - lead];
    if (from.size == sizes[d] && (from.size > 1 || from.scales() || !dims[d].scales())) {
      if (from.size > 1) call.unify(from, dims[d]);
      dims[d] = from;
      strides[d] = x->strides[d - lead];
    } else if (from.size == sizes[d]) {
      strides[d] = {x->strides[d - lead].was, 0};
    }
  }
  call.set_sizes(1, dims);
  call.give(0, view_of(*x, std::move(dims), std::move(strides)));
}

// --- reshape -----------------------------------------------------------------------------------

// The factors that were merged into `dim`, shared out anew over `sizes` in their order; nothing
// where one that changes would have to be cut.
std::optional<Dims> shared_out(const Dim& dim, std::span<const std::int64_t> sizes) {
  Dims made, left(dim.factors.rbegin(), dim.factors.rend());
  for (std::int64_t size : sizes) {
    Dim part{.size = 1};
    while (part.size < size) {
      if (left.empty()) return {};
      Dim& next = left.back();
      const std::int64_t wanted = size / part.size;
      if (size % part.size != 0 || next.offset != 0) return {};
      if (wanted % next.size == 0) {
        part.factors.push_back(next);
        part.size *= next.size;
        part.power += next.power;
        part.hole = std::max(part.hole, next.hole);
        left.pop_back();
      } else if (next.size % wanted == 0 && !next.scales() && next.hole < 0) {
        part.factors.push_back(constant(wanted));
        part.size *= wanted;
        next.size /= wanted;
      } else {
        return {};
      }
    }
    if (part.size != size) return {};
    if (part.factors.size() == 1) part.factors.clear();
    made.push_back(std::move(part));
  }
  while (!left.empty() && left.back().size == 1 && !left.back().scales()) left.pop_back();
  return left.empty() ? std::optional(made) : std::nullopt;
}

// One dimension becomes several. The change goes by known facts: the factors that were once merged,
// holes that later ops filled, the -1 of the call; else to the first dimension that can take it.
void split_dim(Call& call, const Dim& dim, std::size_t begin, std::span<const std::int64_t> sizes,
               std::int64_t inferred, Dims& out) {
  for (std::size_t o = 0; o < sizes.size(); ++o) {
    if (sizes[o] != dim.size) continue;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      out.push_back(i == o ? dim : constant(sizes[i]));
    }
    return;
  }
  if (const auto known = shared_out(dim, sizes)) {
    out.insert(out.end(), known->begin(), known->end());
    return;
  }
  Dims made;
  int left = dim.power;
  for (std::size_t o = 0; o < sizes.size(); ++o) {
    made.push_back(dim.scales() || dim.hole >= 0 ? call.open(0, begin + o, sizes[o], dim.hole)
                                                 : constant(sizes[o]));
    left -= made.back().power;
  }
  if (dim.scales() && dim.offset != 0) {
    call.refuse("it splits a size that is no multiple of a power of the one that changes");
  }
  if (!dim.scales()) {  // a hole, of which one part may be filled already
    for (const Dim& part : made) {
      if (part.scales()) call.tracker().fill(dim, part.power, 0);
    }
  }
  const std::int64_t was = call.tracker().was();
  const auto take = [&](auto&& wanted) {
    for (std::size_t o = 0; o < made.size() && left > 0; ++o) {
      if (made[o].scales() || !wanted(o)) continue;
      made[o].power = 1;
      --left;
    }
  };
  const auto may_hold = [&](std::size_t o) {
    return was > 1 ? sizes[o] % was == 0 : sizes[o] == 1;
  };
  take([&](std::size_t o) {
    return static_cast<std::int64_t>(begin + o) == inferred && (was <= 1 || may_hold(o));
  });
  take(may_hold);
  take([&](std::size_t) { return true; });
  out.insert(out.end(), made.begin(), made.end());
}

Dims pieces_of(const Dims& dims) {
  Dims pieces;
  for (const Dim& dim : dims) {
    if (dim.factors.empty()) {
      pieces.push_back(dim);
    } else {
      pieces.insert(pieces.end(), dim.factors.begin(), dim.factors.end());
    }
  }
  return pieces;
}

// Groups of dimensions with the same product, row by row.
Dims regroup(Call& call, const Dims& from, std::span<const std::int64_t> sizes,
             std::int64_t inferred) {
  Dims out;
  const Dims pieces = pieces_of(from);
  std::size_t i = 0, o = 0;
  while (o < sizes.size()) {
    if (i == pieces.size()) {
      out.push_back(constant(sizes[o++]));
      continue;
    }
    // view(1, -1) of one element: the -1 may grow.
    const auto grows = static_cast<std::size_t>(inferred);
    if (inferred >= 0 && o < grows && pieces[i].size == 1 && sizes[o] == 1 && sizes[grows] == 1 &&
        i + 1 == pieces.size()) {
      out.push_back(constant(sizes[o++]));
      continue;
    }
    std::size_t i_end = i + 1, o_end = o + 1;
    std::int64_t a = pieces[i].size, b = sizes[o];
    while (a != b) {
      if (a < b && i_end < pieces.size()) {
        a *= pieces[i_end++].size;
      } else if (a > b && o_end < sizes.size()) {
        b *= sizes[o_end++];
      } else {
        break;
      }
    }
    if (a != b) return {};
    if (o_end == sizes.size()) {  // ones at the end
      while (i_end < pieces.size()) ++i_end;
    }
    const Dims group(pieces.begin() + static_cast<std::ptrdiff_t>(i),
                     pieces.begin() + static_cast<std::ptrdiff_t>(i_end));
    const Dim whole = merged(call, group);
    if (o_end - o == 1) {
      out.push_back(whole);
    } else {
      split_dim(call, whole, o, sizes.subspan(o, o_end - o), inferred, out);
    }
    i = i_end;
    o = o_end;
  }
  return out;
}

// PyTorch's computeStride for one of the two sets of numbers; empty: the data must be copied.
template <class Integer>
std::vector<Integer> viewed_strides(const std::vector<Integer>& sizes,
                                    const std::vector<Integer>& strides,
                                    const std::vector<Integer>& wanted) {
  std::vector<Integer> made(wanted.size());
  auto view_d = static_cast<std::ptrdiff_t>(wanted.size()) - 1;
  Integer chunk = strides.empty() ? Integer(1) : strides.back(), tensor_numel = 1, view_numel = 1;
  for (auto d = static_cast<std::ptrdiff_t>(sizes.size()) - 1; d >= 0; --d) {
    const auto at = static_cast<std::size_t>(d);
    tensor_numel *= sizes[at];
    if (d == 0 || (sizes[at - 1] != 1 && strides[at - 1] != tensor_numel * chunk)) {
      while (view_d >= 0 && (view_numel < tensor_numel || wanted[view_d] == 1)) {
        made[view_d] = view_numel * chunk;
        view_numel *= wanted[view_d--];
      }
      if (view_numel != tensor_numel) return {};
      if (d > 0) {
        chunk = strides[at - 1];
        tensor_numel = view_numel = 1;
      }
    }
  }
  return view_d == -1 ? made : std::vector<Integer>{};
}

std::vector<Change> reshaped_strides(Call& call, const Layout& x, const Dims& dims) {
  std::vector<std::int64_t> old_sizes, old_strides, old_wanted;
  std::vector<Number> new_sizes, new_strides, new_wanted;
  for (std::size_t d = 0; d < x.dims.size(); ++d) {
    old_sizes.push_back(x.dims[d].size);
    new_sizes.push_back(call.now(x.dims[d]));
    old_strides.push_back(x.strides[d].was);
    new_strides.push_back(x.strides[d].now);
  }
  for (const Dim& dim : dims) {
    old_wanted.push_back(dim.size);
    new_wanted.push_back(call.now(dim));
  }
  const auto was = viewed_strides(old_sizes, old_strides, old_wanted);
  const auto now = viewed_strides(new_sizes, new_strides, new_wanted);
  const Layout dense = call.tracker().contiguous(dims);
  if (was.size() != dims.size() || now.size() != dims.size()) return dense.strides;
  std::vector<Change> made;
  for (std::size_t d = 0; d < dims.size(); ++d) made.push_back({was[d], now[d]});
  return made;
}

void reshape(Call& call) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0) return;
  const auto sizes = call.out_shape(0);
  const auto asked = call.integers(1);
  std::int64_t inferred = -1;
  if (asked.size() == sizes.size()) {
    const auto at = std::find(asked.begin(), asked.end(), -1);
    if (at != asked.end()) inferred = at - asked.begin();
  }
  const auto promise = call.tracker().promised(call.out(0));  // the op around a view has it
  if (promise && x->dims.size() == 1 && !x->scales()) {       // C++ code counted these rows
    Dims known = promise->dims;
    call.tracker().fill(x->dims[0], merged(call, known).power, 0);
  }
  Dims dims = promise ? promise->dims : regroup(call, x->dims, sizes, inferred);
  if (dims.size() != sizes.size()) {
    if (x->scales()) return;
    dims = Dims(sizes.size());
    for (std::size_t d = 0; d < sizes.size(); ++d) dims[d].size = sizes[d];
  }
  auto strides = reshaped_strides(call, *x, dims);
  call.set_sizes(1, dims);
  if (call.name() == "aten::_reshape_alias") call.set_strides(2, strides);
  call.give(0, view_of(*x, std::move(dims), std::move(strides)));
}

// A stride that none of the tensor's own is: a product of its sizes, the smallest number of them.
Change stride_of_sizes(const Call& call, const Dims& dims, std::int64_t stride) {
  Change best = {stride, stride};
  int fewest = static_cast<int>(dims.size()) + 1;
  for (std::uint32_t chosen = 1; chosen < 1U << dims.size(); ++chosen) {
    Change product = {1, 1};
    for (std::size_t d = 0; d < dims.size(); ++d) {
      if (!(chosen >> d & 1U)) continue;
      product.was *= dims[d].size;
      product.now *= call.now(dims[d]);
    }
    if (product.was != stride || std::popcount(chosen) >= fewest) continue;
    fewest = std::popcount(chosen);
    best.now = product.now;
  }
  return best;
}

void as_strided(Call& call) {
  const Layout* x = call.in(0);
  if (!x || call.out_count() == 0) return;
  const auto sizes = call.out_shape(0);
  const auto strides = call.integers(2);
  if (strides.size() != sizes.size()) return;
  Layout made = *x;
  const auto promise = call.tracker().promised(call.out(0));
  if (promise && promise->squeezed) {
    std::vector<Number> new_sizes, new_strides;
    for (const Left& left : *promise->squeezed) {
      new_sizes.push_back(left.size);
      new_strides.push_back(left.stride);
    }
    const Number rank = std::ssize(new_sizes);
    call.tracker().set_list(*call.argument(1), rank, std::move(new_sizes));
    call.tracker().set_list(*call.argument(2), rank, std::move(new_strides));
    call.give(0, *promise);
    return;
  }
  const auto fits = [&](const Layout& layout) {
    for (std::size_t d = 0; d < strides.size(); ++d) {
      if (layout.dims[d].size != 1 && layout.strides[d].was != strides[d]) return false;
    }
    return layout.strides.size() == strides.size();
  };
  if (promise && fits(*promise)) {
    made = *promise;
    for (std::size_t d = 0; d < strides.size(); ++d) {
      if (made.strides[d].was == strides[d]) continue;
      // One element may have any stride.
      const bool stays = call.now(made.dims[d]) == made.dims[d].size;
      made.strides[d] = {strides[d], stays ? Number(strides[d]) : made.strides[d].now};
    }
  } else {
    made.dims.clear();
    made.strides.clear();
    for (std::size_t d = 0; d < sizes.size(); ++d) {
      Dim dim = promise ? promise->dims[d] : constant(sizes[d]);
      Change stride = stride_of_sizes(call, x->dims, strides[d]);
      for (std::size_t j = 0; j < x->dims.size(); ++j) {
        if (x->strides[j].was != strides[d]) continue;
        stride = x->strides[j];
        if (!promise && x->dims[j].size == sizes[d]) {
          dim = x->dims[j];
          break;
        }
      }
      made.dims.push_back(dim);
      made.strides.push_back(stride);
    }
    if (const auto dense = dense_strides(call.tracker(), made.dims, strides)) made.strides = *dense;
  }
  if (const auto offset = call.integer(3)) {
    if (*offset == x->offset.was) {
      made.offset = x->offset;
    } else if (!promise || promise->offset.was != *offset) {
      made.offset = {*offset, *offset};
      const std::int64_t rest = *offset - x->offset.was;
      std::int64_t widest = 0;
      for (const Change& stride : made.strides) {  // so many rows further
        if (stride.was <= widest || rest % stride.was != 0) continue;
        widest = stride.was;
        made.offset.now = x->offset.now + rest / stride.was * stride.now;
      }
    }
    call.set(3, made.offset.now);
  }
  call.set_sizes(1, made.dims);
  call.set_strides(2, made.strides);
  call.give(0, std::move(made));
}

}  // namespace

std::span<const NamedRule> view_rules() {
  static constexpr NamedRule kRules[] = {
      {"same_layout", same_layout},
      {"transpose", transpose},
      {"permute", permute},
      {"select", select},
      {"slice", slice},
      {"narrow", narrow},
      {"split", split},
      {"unbind", unbind},
      {"squeeze", squeeze},
      {"unsqueeze", unsqueeze},
      {"expand", expand},
      {"reshape", reshape},
      {"as_strided", as_strided},
  };
  return kRules;
}

}  // namespace perfmodel::resize
