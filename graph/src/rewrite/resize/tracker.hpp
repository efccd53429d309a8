#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "edits.hpp"
#include "layout.hpp"
#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/result.hpp"
#include "step/by_id.hpp"

namespace perfmodel::resize {

class Tracker;

/// A Tracker calls this at each node: it returns the layouts of the outputs, by the rule of the op.
using ApplyRule = std::function<std::vector<std::optional<Layout>>(Tracker&, std::int32_t node)>;

/// A tensor that no op of the graph makes: an input, a parameter or a state.
struct External {
  std::uint32_t tensor = 0;  ///< into ExecutionGraph::tensors, as first met
  bool state = false;        ///< changed in place
  bool weight = false;       ///< an op takes it as a parameter
  bool from_host = false;    ///< is copied to the GPU
  bool time_first = false;   ///< feeds a recurrent layer or a loop over steps, steps in front
};

/// Which dimensions of the inputs are the size that changes, by External.
struct Seeds {
  std::int64_t was = 1, now = 1;
  std::vector<std::vector<bool>> dims = {};
  /// Gives `dims` of tensors from outside as they are met; empty: they are given from the start.
  std::function<std::vector<bool>(std::uint32_t tensor)> dims_of = {};
  /// Parameters and states change, and the caller's inputs stay; parameters that no seed names
  /// follow the tensors that they meet. Without it the other way round.
  bool model_too = false;

  bool none() const { return dims.empty() && !dims_of; }
};

/// Follows sizes through a graph. A pass visits the nodes in their order, finds the version of each
/// tensor by its id (ids are reused: an output is a new version unless the op, or one below it,
/// wrote it) and asks the rule of each op for the dimensions of its outputs and for the integers
/// that are sizes. Dimensions that nothing in front of them decides (sizes computed in Python,
/// labels, offsets) are holes; ops that need equal sizes fill them, and the pass is done again
/// until none is filled.
class Tracker {
 public:
  /// `externals`: those that an earlier Tracker without seeds found. `tape`: notes how all numbers
  /// come from the new size; null: none.
  Tracker(const ExecutionGraph& graph, ApplyRule apply_rule, Seeds seeds,
          std::vector<External> externals = {}, Tape* tape = nullptr);

  /// All passes. Errors: an op without rule that meets the size, sizes that must be equal and are
  /// not.
  Result<void> run();

  /// Whether run() failed for sizes that must be equal and are not.
  bool contradicts() const { return contradicts_; }

  const std::vector<External>& externals() const { return externals_; }
  /// After run(). Errors: tensors of 2^60 elements or more.
  Result<Edits> edits() const;

  // For rules.
  const ExecutionGraph& graph() const { return graph_; }
  std::int64_t was() const { return seeds_.was; }
  Number now(const Dim& dim) const;
  /// The two must be one size: fills a hole, or notes a contradiction of `node`.
  void unify(const Dim& a, const Dim& b, std::int32_t node);
  /// Fills the hole of `dim`, if it has one that is open.
  bool fill(const Dim& dim, int power, std::int64_t offset);
  /// A dimension of that size that is open until it is filled; `like`: a hole that is filled too.
  Dim open(std::uint64_t key, std::int64_t size, std::int32_t like = -1);
  Layout contiguous(Dims dims) const;
  const Layout* layout_of(const Tensor& tensor);
  /// The version that has the tensor's id and shape now; null: none.
  const Layout* current(const Tensor& tensor) {
    const Version* known = find(tensor);
    return known ? &known->layout : nullptr;
  }
  std::optional<Layout> promised(const Tensor& tensor) const;
  /// Dimensions of an output of the ops above that has these sizes and changes.
  std::optional<Dims> promised_shape(std::span<const std::int64_t> sizes) const;
  void set_integer(const Argument& argument, const Number& value);
  /// A list that gets another length: `values`, over and over if they are too few.
  void set_list(const Argument& argument, const Number& length, std::vector<Number> values);
  void set_real(const Argument& argument, const Real& value);
  void refuse(std::int32_t node, std::string why);
  /// The forward op of the backward function around `node`; -1: none.
  std::int32_t forward_op(std::int32_t node) const;
  /// `steps`, which a recurrent layer takes first: so does the input that they come from, unless it
  /// has more than `most_rank` dimensions.
  void note_time_first(const Dim& steps, int most_rank = std::numeric_limits<int>::max());

 private:
  struct Version {
    Layout layout;
    std::int64_t storage = 0;
    std::int64_t written = 0;   // clock
    Version* before = nullptr;  // the one that had the storage before
    int views = 0;              // how many of the storage are looked at, from this one back
  };
  struct Hole {
    int power = 0;
    std::int64_t offset = 0, size = 0;
    bool filled = false;
    std::int32_t like = -1;
    std::uint64_t key = 0;
  };
  struct Promise {
    std::int64_t id = 0, storage = 0;
    Layout layout;
    std::int64_t clock = 0;  // when it was given
  };

  struct Open {
    std::int32_t node = 0;
    std::size_t promises = 0;  // before its own
    std::vector<std::optional<Layout>> given;
  };

  void pass();
  void enter(std::int32_t index);
  void leave(std::int32_t index, std::vector<std::optional<Layout>> given);
  Version* find(const Tensor& tensor);
  Version& read(std::uint32_t tensor, std::int32_t reader);
  Version& make_external(std::uint32_t tensor, std::int32_t reader);
  Version& define(const Tensor& tensor, Layout layout);
  bool same_shape(const Tensor& tensor, const Layout& layout) const;
  bool after_forward(std::int32_t node) const;
  void note_state(const Node& node);
  template <class Visit>
  void each_tensor(std::span<const Argument> arguments, Visit&& visit) const;

  const ExecutionGraph& graph_;
  ApplyRule apply_rule_;
  Seeds seeds_;
  Tape* tape_;
  std::vector<std::int32_t> last_below_, partners_;

  std::vector<External> externals_;
  std::size_t externals_met_ = 0;
  std::vector<Hole> holes_;
  std::unordered_map<std::uint64_t, std::int32_t> hole_keys_;
  bool filled_ = false;

  // One pass.
  std::vector<std::vector<Version>> versions_;  // in pieces that do not move
  ById<Version*> by_id_{0}, by_storage_{0};     // the latest; null: none
  std::vector<Promise> promises_;
  std::vector<std::int64_t> entered_;  // per node: clock
  std::vector<Open> open_;             // nodes with children
  std::vector<const Version*> of_tensor_;
  std::vector<Edits::Place> integers_;
  std::vector<Edits::FloatPlace> reals_;
  std::vector<Edits::List> lists_;
  std::int64_t clock_ = 0;
  std::optional<Error> refused_;
  bool contradicts_ = false;  // it was for unequal sizes
  bool only_externals_;       // sizes of what ops make do not matter
};

}  // namespace perfmodel::resize
