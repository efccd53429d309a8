#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace perfmodel {

/// Kind of an op. It settles the common properties of most ops of the kind: see `price_rule`,
/// `size_rule` and `retarget_rule`.
enum class OpKind : std::uint8_t {
  kComposite,  ///< launches nothing itself: the calls inside are priced
  kPointwise,  ///< one kernel over the elements of its result
  kProduct,    ///< matrices and vectors
  kReduction,  ///< and scans
  kSoftmax,
  kNorm,
  kConvolution,
  kPooling,  ///< and resampling
  kAttention,
  kRecurrent,
  kEmbedding,
  kIndex,  ///< gathers and scatters
  kSort,
  kConcat,
  kLoss,
  kDetection,
  kForeach,    ///< over lists of tensors
  kOptimizer,  ///< a fused step over lists of parameters
  kCopy,
  kFill,  ///< only writes
  kRandom,
  kCollective,
  kTriton,
  // These launch nothing, whatever is below them.
  kView,
  kAllocation,
  kCast,  ///< to another type or device: nothing to do, or a copy below
  kQuery,
  kWrapper,  ///< autograd nodes, regions, calls of collectives
};

/// Behaviour of torch.autocast towards an op.
enum class AutocastPolicy : std::uint8_t {
  kKeep,      ///< runs in the type of its inputs
  kLower,     ///< fp32 arguments are cast to the half type
  kFp32,      ///< half arguments are cast to fp32
  kFp32Type,  ///< is asked for an fp32 result by its dtype argument
  kPromote,   ///< arguments are cast to the widest type among them
  kBanned,    ///< raises an error: programs call it outside, on fp32 inputs
};

/// Positions among the arguments of an op, from 0.
struct Positions {
  std::uint32_t bits = 0;

  constexpr Positions() = default;
  constexpr Positions(std::initializer_list<int> positions) {
    for (int position : positions) add(static_cast<std::size_t>(position));
  }
  constexpr void add(std::size_t position) { bits |= 1u << position; }
  constexpr Positions without(Positions others) const {
    Positions rest;
    rest.bits = bits & ~others.bits;
    return rest;
  }
  constexpr bool has(std::size_t position) const {
    return position < 32 && (bits >> position & 1u) != 0;
  }
};

/// All that pricing and rewrites know of an op, except its name and kind.
struct OpFacts {
  double flop = 0;        ///< pointwise: per element; transcendental functions take 10 to 40
  bool in_place = false;  ///< the same row holds for an "aten::add_", too
  /// Pointwise: an element of the result only needs the elements of the inputs at its own place, so
  /// that neighbours can run as one kernel. Not so for moves (flip, padding, halves of a GLU).
  bool fusible = true;
  bool is_prefix = false;   ///< names that begin so, followed by any text
  bool converts = false;    ///< `x.to(...)` and the copy inside it
  bool has_addend = false;  ///< product: that is added to the first argument
  /// Product: the op that computes it in fp8 and fp4; empty: none.
  std::string_view narrow = {};
  bool takes_numbers = false;  ///< Python wraps a number that comes with a tensor into a tensor

  // Names of rules; empty: the kind's rule; "none": none.
  std::string_view price = {};     ///< in predictors/src/lower/ops: kernels it launches
  std::string_view size = {};      ///< in rewrite/resize: sizes of its results
  std::string_view retarget = {};  ///< in rewrite/retarget_*: the GPU's form of a CPU op

  /// aten/src/ATen/autocast_mode.h of PyTorch 2 (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32,
  /// AT_FORALL_FP32_SET_OPT_DTYPE, AT_FORALL_PROMOTE); cross_entropy_loss is in none of them, its
  /// parts are. Recurrent library calls have a kernel of their own that casts all tensors. On CPUs:
  /// PyTorch 1.13, ops that training graphs hold. Never of the in-place variant.
  AutocastPolicy autocast = AutocastPolicy::kKeep, autocast_cpu = AutocastPolicy::kKeep;

  /// Ops of other names, separated by commas, that it may call instead of launching a kernel: of
  /// ops that are primitives themselves in some PyTorch version.
  std::string_view calls = {};

  Positions weights = {};    ///< arguments that are parameters or statistics of a model
  Positions constants = {};  ///< no data if no op made them: states, masks
  Positions data = {};       ///< data if no op made them

  /// Arguments and results that the backward pass reads (derivatives.yaml of PyTorch 2): tensors
  /// that live until then. If this depends on which inputs need gradients, all of them are named.
  Positions keeps_inputs = {}, keeps_results = {};
  /// The part of `keeps_inputs` that only gradients of other inputs need: not kept if the others
  /// cannot have gradients, such as numbers and masks.
  Positions keeps_for_others = {};
  /// The part of `keeps_results` that only gradients of later inputs need.
  Positions keeps_results_for_others = {};
};

/// An op with its overloads: a row of rows.txt that has facts.
struct Op : OpFacts {
  std::string_view name;  ///< "aten::add"
  OpKind kind;

  constexpr Op(std::string_view op_name, OpKind op_kind, OpFacts facts = {})
      : OpFacts(facts), name(op_name), kind(op_kind) {}
};

/// All ops, family by family: prefixes are asked in this order.
std::span<const Op> op_catalogue();

/// The row of a name as graphs hold it ("aten::add", "aten::add_", "fbgemm::…_adagrad_function");
/// null: not known. An exact row is preferred to the row of the op whose in-place variant it is,
/// and this to a prefix.
const Op* find_op(std::string_view name);

/// Name of the rule; empty: there is none.
std::string_view price_rule(const Op& op);
std::string_view size_rule(const Op& op);
/// In-place variants only have the rule of lists.
std::string_view retarget_rule(const Op& op);

AutocastPolicy autocast_policy(std::string_view name, bool on_gpu);

// Questions of rewrites about names as graphs hold them.

/// `x.to(...)` or the copy inside it.
bool is_conversion(std::string_view name);
/// Writes the elements of one tensor into another.
bool is_copy(std::string_view name);
/// `a + b` or `a += b`
bool is_sum(std::string_view name);
/// Memory that is not written yet: "aten::empty", "aten::empty_like", ...
bool is_empty(std::string_view name);
/// `torch.zeros(...)`
bool is_zeros(std::string_view name);
/// A product of matrices whose work follows from the shapes of its operands: `torch.mm`, `bmm` and
/// the variants with an addend.
bool is_matrix_product(std::string_view name);
/// `torch.nn.functional.embedding`: a row of one table per index.
bool is_row_lookup(std::string_view name);
bool is_convolution(std::string_view name);  ///< or a gradient of one
/// Its arguments tell the strides of its result; all views end in it.
bool gives_strides(std::string_view name);

}  // namespace perfmodel
