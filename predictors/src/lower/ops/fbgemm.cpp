#include <algorithm>
#include <span>

#include "embedding_nodes.hpp"
#include "families.hpp"
#include "perfmodel/graph/detail/event_names.hpp"

/// FBGEMM's table-batched embeddings and sparse-feature ops. Symbols: T tables, B batch, L pooling
/// factor, E rows per table, D elements per row.
///
/// The lookup op carries everything. Its autograd node sees only the gradient, so the rule goes
/// back to the lookup: the node itself or, in older graphs whose lookup has no sequence number, the
/// first lookup of that kind after the node with the same number; its output has the gradient's
/// shape.
namespace perfmodel::ops {
namespace {

KernelWork embedding_work(KernelFamily family, const BatchedLookup& lookup, double rows_read,
                          double rows_written) {
  const EmbeddingShape& s = lookup.shape;
  const double row = s.dim * s.weight_bytes;
  const double output = static_cast<double>(s.batch) * lookup.total_dim * s.output_bytes;
  const bool is_backward = family == KernelFamily::kEmbeddingBackward;
  KernelWork work =
      make_work(family, lookup.dtype,
                rows_read * row + lookup.lookups * s.index_bytes + (is_backward ? output : 0),
                rows_written * row + (is_backward ? 0 : output), lookup.lookups * s.dim);
  work.shape = s;
  return work;
}

bool lower_fbgemm_lookup(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const auto lookup = read_batched_lookup(op);
  if (!lookup) return false;
  kernels.push_back(embedding_work(KernelFamily::kEmbeddingForward, *lookup, lookup->lookups, 0));
  return true;
}

/// "torch::autograd::CppNode<SplitLookupFunction_adagrad_Op>" -> "adagrad"; dense -> "".
std::string_view optimizer_name(std::string_view node_name) {
  constexpr std::string_view kPrefix = "SplitLookupFunction_";
  const std::size_t begin = node_name.find(kPrefix);
  if (begin == std::string_view::npos) return {};
  std::string_view rest = node_name.substr(begin + kPrefix.size());
  if (const auto end = rest.find("_Op"); end != std::string_view::npos) rest = rest.substr(0, end);
  return rest == "Dense" || rest == "dense" ? std::string_view() : rest;
}

/// Bytes of optimizer state per touched row, read and written: row-wise forms keep one fp32 number
/// per row, element-wise ones one (adagrad) or two (adam, lamb) per element, SGD none.
double state_bytes_per_row(std::string_view optimizer, double d) {
  const bool is_adam = optimizer.find("adam") != std::string_view::npos ||
                       optimizer.find("lamb") != std::string_view::npos;
  const bool is_row_wise = optimizer.find("rowwise") != std::string_view::npos;
  if (optimizer.empty() || optimizer.find("sgd") != std::string_view::npos || optimizer == "none") {
    return optimizer.starts_with("lars") ? 2 * 4 * d : 0;
  }
  if (is_adam) return 2 * 4 * (is_row_wise ? d + 1 : 2 * d);  // partial_rowwise: full first moment
  return 2 * 4 * (is_row_wise ? 1 : d);
}

/// The lookup whose gradient `op` computes, or nullptr: the first one after the forward op, else
/// the last one before in the same step. Nodes are in the order of their ids.
const Node* find_lookup(const OpView& op) {
  if (op.forward && is_batched_lookup(op.graph.name(*op.forward))) return op.forward;
  const Tensor* gradient = op.tensor_input(0);
  if (!gradient) return nullptr;
  const std::string_view optimizer = optimizer_name(op.name());
  const std::string wanted = optimizer.empty()
                                 ? std::string("fbgemm::dense_embedding_codegen_lookup_function")
                                 : std::string("lookup_") + std::string(optimizer) + "_function";
  const auto is_wanted = [&](const Node& node) {
    const std::string_view name = op.graph.name(node);
    if (!is_batched_lookup(name) || name.find(wanted) == std::string_view::npos) return false;
    const Tensor* output = OpView{op.graph, node}.tensor_output(0);
    return output && std::ranges::equal(op.shape(*output), op.shape(*gradient));
  };
  const auto until = std::ranges::lower_bound(op.graph.nodes, op.node.id, {}, &Node::id);
  const std::span<const Node> before(op.graph.nodes.begin(), until);
  const auto after =
      op.forward ? std::ranges::upper_bound(before, op.forward->id, {}, &Node::id) : before.end();
  const auto first = std::find_if(after, before.end(), is_wanted);
  if (first != before.end()) return &*first;
  for (auto at = after; at != before.begin();) {
    const Node& node = *--at;
    if (is_wanted(node)) return &node;
    if (is_profiler_step(op.graph.name(node))) break;
  }
  return nullptr;
}

/// Backward of a lookup (FBGEMM's generated host code): linearize the indices, sort them,
/// run-length encode and scan (4 kernels), then one kernel for long and one for short segments.
/// With L the lookups and U the expected distinct rows, the main kernel reads L gradient rows and
/// reads and writes U weight rows and their optimizer state.
bool lower_fbgemm_lookup_backward(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Node* node = find_lookup(op);
  if (!node) return false;
  const OpView forward{op.graph, *node, nullptr, op.schemas};
  auto lookup = read_batched_lookup(forward);
  if (!lookup) return false;
  EmbeddingShape& s = lookup->shape;
  s.optimizer_bytes_per_row = state_bytes_per_row(optimizer_name(op.name()), s.dim);
  const auto count = static_cast<std::int64_t>(lookup->lookups);
  const double index_bytes = lookup->lookups * s.index_bytes;

  kernels.push_back(
      make_work(KernelFamily::kIndex, DType::kInt64, index_bytes, 2 * index_bytes));  // linearize
  append_radix_sort(kernels, count, s.index_bytes, 4, bits_for(lookup->total_rows));
  kernels.push_back(small_work());  // init
  kernels.push_back(
      make_work(KernelFamily::kSort, DType::kInt64, index_bytes, index_bytes));  // encode
  kernels.push_back(small_work());                                               // init
  kernels.push_back(small_work());                                               // scan
  kernels.push_back(small_work());  // long segments: none when indices are uniform
  const double rows = std::min(lookup->lookups, lookup->total_rows);
  KernelWork work = embedding_work(KernelFamily::kEmbeddingBackward, *lookup, rows, rows);
  work.bytes_read += {rows * s.optimizer_bytes_per_row / 2};
  work.bytes_written += {rows * s.optimizer_bytes_per_row / 2};
  kernels.push_back(work);
  return true;
}

/// cub scan: an init kernel and the scan itself, which reads and writes everything once.
void append_scan(std::vector<KernelWork>& kernels, double read, double written) {
  kernels.push_back(small_work());
  kernels.push_back(make_work(KernelFamily::kReduction, DType::kInt64, read, written));
}

bool lower_cumsum(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* input = op.tensor_input(0);
  if (!input) return false;
  append_scan(kernels, bytes(*input), bytes(*input));
  return true;
}

/// permute_2D_sparse_data(permute, lengths, values, ...): permute the lengths, two scans, move the
/// values.
bool lower_permute_sparse(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* lengths = op.tensor_input(1);
  const Tensor* values = op.tensor_input(2);
  if (!lengths || !values) return false;
  const double l = bytes(*lengths);
  kernels.push_back(make_work(KernelFamily::kIndex, lengths->dtype, l, l));
  append_scan(kernels, l, l);
  append_scan(kernels, l, l);
  const double moved = bytes(*values) + bytes(op.tensor_input(3));
  kernels.push_back(make_work(KernelFamily::kIndex, values->dtype, moved + l, moved));
  return true;
}

/// block_bucketize_sparse_features(lengths, values, ..., blocks, weights): offsets of the bags, a
/// kernel that counts what falls into each block, offsets of the blocks' bags, a kernel that moves
/// the values there. The counters are zeroed by a child.
bool lower_bucketize(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* lengths = op.tensor_input(0);
  const Tensor* values = op.tensor_input(1);
  const Tensor* block_lengths = op.tensor_output(0);
  if (!lengths || !values || !block_lengths) return false;
  const double bags = bytes(*lengths), block_bags = bytes(*block_lengths), moved = bytes(*values);
  append_scan(kernels, bags, bags);
  kernels.push_back(make_work(KernelFamily::kIndex, values->dtype, bags + moved, block_bags));
  append_scan(kernels, block_bags, block_bags);
  const double weights = bytes(named_tensor(op, "weights", 6));
  kernels.push_back(make_work(KernelFamily::kIndex, values->dtype,
                              bags + block_bags + moved + weights, moved + weights));
  return true;
}

/// One kernel that touches each of the node's tensors once.
bool lower_fbgemm_one_pass(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Traffic t = traffic(op);
  if (!t.any) return false;
  double written = t.written;
  if (op.name().find("bounds_check") != std::string_view::npos) written = 0;  // only repairs
  kernels.push_back(make_work(KernelFamily::kIndex, t.dtype, t.read, written));
  return true;
}

/// The backward permutation sees one gradient, in and out.
bool lower_permute_backward(const OpView& op, const Gpu&, std::vector<KernelWork>& kernels) {
  const Tensor* gradient = op.tensor_input(0);
  if (!gradient) return false;
  kernels.push_back(
      make_work(KernelFamily::kIndex, gradient->dtype, bytes(*gradient), bytes(*gradient)));
  return true;
}

}  // namespace

std::span<const NamedLower> fbgemm_rules() {
  static constexpr NamedLower kRules[] = {
      {"fbgemm.cumsum", lower_cumsum},
      {"fbgemm.permute_sparse", lower_permute_sparse},
      {"fbgemm.bucketize", lower_bucketize},
      {"fbgemm.one_pass", lower_fbgemm_one_pass},
      {"fbgemm.lookup", lower_fbgemm_lookup},
      {"fbgemm.lookup_backward", lower_fbgemm_lookup_backward},
      {"fbgemm.permute_backward", lower_permute_backward},
  };
  return kRules;
}

}  // namespace perfmodel::ops
