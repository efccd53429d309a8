#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tracker.hpp"

namespace perfmodel::resize {

/// One node as its rule sees it.
class Call {
 public:
  Call(Tracker& tracker, std::int32_t index);

  Tracker& tracker() { return tracker_; }
  const ExecutionGraph& graph() const { return tracker_.graph(); }
  std::int32_t index() const { return index_; }
  const Node& node() const { return graph().node(index_); }
  std::string_view name() const { return graph().name(node()); }

  std::size_t size() const { return inputs_.size(); }
  const Argument* argument(std::size_t at) const {
    return at < inputs_.size() ? &inputs_[at] : nullptr;
  }
  /// The tensor at a position; null: none there.
  const Layout* in(std::size_t at) { return at < inputs_.size() ? layout(inputs_[at]) : nullptr; }
  std::vector<const Layout*> list(std::size_t at);
  /// All tensors that are arguments themselves, not in lists.
  std::vector<const Layout*> tensors();
  std::optional<std::int64_t> integer(std::size_t at) const;
  std::vector<std::int64_t> integers(std::size_t at) const;  ///< a list, or one number
  bool flag(std::size_t at) const;
  /// Position of an argument by its name in the schema; -1: not there.
  int position(std::string_view name) const;

  std::size_t out_count() const { return outs_.size(); }
  /// Without that output: a tensor of nothing.
  const Tensor& out(std::size_t k) const {
    static const Tensor kNothing;
    return k < outs_.size() ? graph().tensors[outs_[k]] : kNothing;
  }
  std::span<const std::int64_t> out_shape(std::size_t k) const { return graph().shape(out(k)); }
  /// Output `k` has this layout. A layout that contradicts the recorded sizes is not taken.
  bool give(std::size_t k, Layout layout);
  bool give(std::size_t k, Dims dims) { return give(k, tracker_.contiguous(std::move(dims))); }
  const std::optional<Layout>& given(std::size_t k) const { return given_[k]; }
  std::vector<std::optional<Layout>> take() { return std::move(given_); }

  void set(std::size_t at, const Number& value) { tracker_.set_integer(inputs_[at], value); }
  /// Sizes or strides: the numbers of a list that are not -1.
  void set_sizes(std::size_t at, const Dims& dims);
  void set_strides(std::size_t at, const std::vector<Change>& strides);
  void set_list(std::size_t at, const std::vector<Change>& values);
  void unify(const Dim& a, const Dim& b) { tracker_.unify(a, b, index_); }
  Dim open(std::size_t k, std::size_t d, std::int64_t size, std::int32_t like = -1);
  Number now(const Dim& dim) const { return tracker_.now(dim); }
  void refuse(std::string why) { tracker_.refuse(index_, std::move(why)); }

 private:
  const Layout* layout(const Argument& argument);

  Tracker& tracker_;
  std::int32_t index_;
  std::span<const Argument> inputs_;
  std::vector<std::uint32_t> outs_;
  std::vector<std::optional<Layout>> given_;
};

using Rule = void (*)(Call&);
struct NamedRule {
  std::string_view name;  ///< as rows of the op catalogue ask for it
  Rule rule;
};

/// Rule of an op by the op's name; null: none.
Rule find_rule(std::string_view name);
/// Looks each name of the graph up once. The graph must live as long.
ApplyRule rules_of(const ExecutionGraph& graph);
std::span<const NamedRule> view_rules();
std::span<const NamedRule> creation_rules();
std::span<const NamedRule> compute_rules();
std::span<const NamedRule> lookup_rules();
std::span<const NamedRule> expert_rules();

// Shared by rules.
Dim plus(Dim dim, std::int64_t constant);
/// The product of dimensions that follow each other.
Dim merged(Call& call, const Dims& dims);
std::int64_t axis(std::int64_t dim, std::size_t rank);
/// Strides of dense memory in the order of dimensions that `recorded` has; nothing if it is not
/// dense.
std::optional<std::vector<Change>> dense_strides(const Tracker& tracker, const Dims& dims,
                                                 const std::vector<std::int64_t>& recorded);
/// Dimensions of sizes that an op got as numbers: taken from the tensor that an op above promises,
/// from the forward op in a backward function, or from the op's other tensors; else open.
Dims dims_of_sizes(Call& call, std::span<const std::int64_t> sizes);
void same_shape(Call& call);

}  // namespace perfmodel::resize
