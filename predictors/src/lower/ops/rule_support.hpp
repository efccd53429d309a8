#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "perfmodel/predictors/detail/op_rules.hpp"

/// Helpers of op rules: they read arguments, count bytes, and make a rule from a function.
namespace perfmodel::ops {

/// Lowers one node; same contract as `OpRule::lower`.
using Lower = bool (*)(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels);

/// A rule that first asks whether the node only hands on to a child: PyTorch re-dispatches many ops
/// under their own name (aten::sum -> aten::sum), and the child is a node with its own kernels. The
/// kernels count only if their work fits the element types: complex and unknown types are merely
/// moved, products take floats and int8. `lower`: null if the op never launches anything. `calls`:
/// names of other ops, separated by spaces, that it may hand on to (`Op::calls`); they must live as
/// long as the rule.
std::unique_ptr<OpRule> make_rule(Lower lower, std::string_view calls = {});

/// Whether one of the node's tensors on a GPU is complex or of unknown type. Lists are cut off in
/// recordings, and the types of their tails with them: there only the types that are known count.
bool has_odd_type(const OpView& op);

/// Name without trailing "_": "aten::add_" -> "aten::add".
std::string_view base_name(std::string_view op_name);

bool has_child(const OpView& op, std::string_view name);

/// Position of a parameter in the recorded schema text, -1 without schema or parameter.
int parameter_index(const OpView& op, std::string_view parameter);

/// The named tensor by schema, else input `fallback`.
const Tensor* named_tensor(const OpView& op, std::string_view parameter, std::size_t fallback);

std::int64_t int_input(const OpView& op, std::size_t i, std::int64_t fallback);
bool bool_input(const OpView& op, std::size_t i, bool fallback);
double real_input(const OpView& op, std::size_t i, double fallback);

/// Up to four integers of a list argument; a plain integer counts as a list of one.
struct IntList {
  std::array<std::int64_t, 4> values{};
  std::size_t size = 0;
  /// The i-th value; a list of one element holds for all dimensions.
  std::int64_t at(std::size_t i, std::int64_t fallback) const {
    if (size == 0) return fallback;
    return i < size ? values[i] : values[size - 1];
  }
};
IntList int_list_input(const OpView& op, std::size_t i);

/// Size of dimension `i`; 1 if the shape has no such dimension.
std::int64_t dim(const OpView& op, const Tensor& tensor, int i);  ///< i < 0 counts from the end

inline double bytes(const Tensor* tensor) {
  return tensor ? static_cast<double>(tensor->bytes()) : 0;
}
inline double bytes(const Tensor& tensor) { return static_cast<double>(tensor.bytes()); }

/// Bytes that the node's own tensors on the GPU make it read and write: every input once (not the
/// `out=` tensors, unless the op works in place) and every output once.
struct Traffic {
  double read = 0, written = 0;
  std::int64_t output_elements = 0;  ///< the largest output's, else the largest input's
  DType dtype = DType::kUnknown;     ///< the first floating-point tensor's, else the first one's
  bool any = false;                  ///< some tensor is on the GPU
};
Traffic traffic(const OpView& op);

/// Calls `visit(const Tensor&)` for each GPU tensor among the arguments, lists included.
template <class Visit>
void for_each_gpu_tensor(const OpView& op, std::span<const Argument> arguments, Visit&& visit) {
  for_each_tensor(op.graph, arguments, [&](const Tensor& tensor) {
    if (tensor.on_gpu()) visit(tensor);
  });
}

KernelWork make_work(KernelFamily family, DType dtype, double read, double written,
                     double flop = 0);

/// A kernel too small to matter beyond its fixed cost.
KernelWork small_work(double read = 0, double written = 0);

/// A further launch of the op: the price of the kernel before includes its time.
KernelWork part_work();

/// C[batch, m, n] = A B (+ C). Bytes of A, B and C once each.
KernelWork gemm_work(std::int64_t batch, std::int64_t m, std::int64_t n, std::int64_t k,
                     const Tensor& like, const Gpu& gpu);

/// Device-wide radix sort of `count` pairs as CUB's onesweep does it: one kernel for small inputs
/// (a single tile), else histogram, prefix sum and one pass per 8 bits of key.
void append_radix_sort(std::vector<KernelWork>& kernels, std::int64_t count, int key_bytes,
                       int value_bytes, int key_bits);

/// CUB's selection, unique and run-length encoding: an init kernel, then one pass that reads the
/// elements and writes those that stay.
void append_compaction(std::vector<KernelWork>& kernels, DType dtype, double read, double written);

/// A number that the host waits for, as cudaMemcpyAsync to its stack and cudaStreamSynchronize.
KernelWork read_back_work();

/// Bits that hold the values 0 .. count-1.
int bits_for(double count);

}  // namespace perfmodel::ops
