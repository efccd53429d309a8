#include <algorithm>
#include <optional>
#include <string_view>

#include "families.hpp"
#include "ops/catalogue.hpp"
#include "ops/template_product.hpp"

/// A kernel that torch.compile wrote in Triton. Its arguments are tensors, then the sizes of the
/// space that it walks: elements (triton_poi), or results and the elements that each combines
/// (triton_red in a loop, triton_per in one go). Each tensor moves once, but at most as many
/// elements as the space has: a kernel that gathers rows of a table reads only these. If outputs
/// are recorded (fused ops of rewrites), all inputs are read and all outputs written; else the last
/// tensor is assumed to be written, so that a tensor changed in place counts once.
///
/// Products ("triton_tem_fused_mm_0", the templates that max-autotune chooses) are products, lists
/// of tensors ("triton_for_fused_0") an optimizer's. Inductor's names tell which ops were fused,
/// each of them once ("triton_poi_fused_add_cos_0"), from which the FLOP per element follow.
namespace perfmodel::ops {
namespace {

constexpr double kFlopOfUnknownKernel = 10;  // per element
constexpr std::string_view kFused = "_fused_";

struct PointwiseName {
  std::string_view bare;  // without its library
  double flop = 0;        // per element
};

std::vector<PointwiseName> make_pointwise_names() {
  std::vector<PointwiseName> names;
  for (const Op& op : op_catalogue()) {
    if (op.kind != OpKind::kPointwise) continue;
    names.push_back({op.name.substr(op.name.find("::") + 2), op.flop});
  }
  return names;
}

// The longest pointwise op with which `text` begins; null: none.
const PointwiseName* first_op(std::string_view text) {
  static const std::vector<PointwiseName> names = make_pointwise_names();
  const PointwiseName* longest = nullptr;
  for (const PointwiseName& name : names) {
    if (!text.starts_with(name.bare)) continue;
    const bool whole = text.size() == name.bare.size() || text[name.bare.size()] == '_';
    if (whole && (!longest || name.bare.size() > longest->bare.size())) longest = &name;
  }
  return longest;
}

// Per element; nothing: the name has no pointwise op.
std::optional<double> flop_of_known_ops(std::string_view name) {
  const auto fused = name.find(kFused);
  if (fused == std::string_view::npos) return std::nullopt;
  std::optional<double> flop;
  std::string_view rest = name.substr(fused + kFused.size());
  while (!rest.empty()) {
    std::size_t length = rest.find('_', 1);
    if (const PointwiseName* op = first_op(rest)) {
      flop = flop.value_or(0) + op->flop;
      length = op->bare.size();
    }
    rest = length < rest.size() ? rest.substr(length + 1) : std::string_view();
  }
  return flop;
}

}  // namespace

double flop_of_fused_ops(std::string_view name) {
  return flop_of_known_ops(name).value_or(kFlopOfUnknownKernel);
}

namespace {

/// The product of a template. All other tensors are read by its epilogue, which computes the
/// pointwise ops of the name and writes all results. A tuned template is priced as the library's
/// kernel, which is among the candidates that max-autotune measures. False: no two tensors fit.
bool lower_template(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const auto product = template_product(op.graph, op.node);
  if (!product) return false;
  KernelWork work =
      gemm_work(product->batch, product->m, product->n, product->k, *product->left, gpu);
  work.layout = Layout::kGenerated;
  work.flop +=
      {flop_of_known_ops(op.name()).value_or(0) * static_cast<double>(product->result->numel)};
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& read) {
    const bool is_own =
        &read == product->left || &read == product->right || &read == product->result;
    if (!is_own) work.bytes_read += {bytes(read)};
  });
  if (op.tensor_output(0)) work.bytes_written = {0};
  for_each_gpu_tensor(op, op.outputs(),
                      [&](const Tensor& written) { work.bytes_written += {bytes(written)}; });
  kernels.push_back(work);
  return true;
}

/// The elements that a kernel walks over.
struct Space {
  std::int64_t results = 0;  ///< 0: the kernel does not say
  std::int64_t combined = 1;

  double elements() const { return static_cast<double>(results) * static_cast<double>(combined); }
};

bool combines_rows(std::string_view name) {
  return name.starts_with("triton_red") || name.starts_with("triton_per");
}

/// Triton's Philox draws four numbers and keeps one: ten rounds of two wide multiplications and two
/// logical operations are 0.7 clocks of an SM. That takes several waves of warps; the first one
/// waits for each round, 1.6 clocks per number. In a clock an SM does 128 FLOP at half its fp32
/// peak on Hopper, 64 on A100. So the kernels of the compiled GPT-2 of data/measurements: 1.6 was
/// read off those on H100 (half a wave), 0.7 off the norms with dropout of `bf16-flash-compile` on
/// H200 (4 waves); the softmax with dropout of `bf16-compile` (46 waves) checks it. TorchScript
/// keeps all four, as PyTorch's own dropout does, of which the catalogue has the FLOP.
double flop_of_random_number(const Gpu& gpu, const Space& space, bool rows) {
  constexpr double kClocks = 0.7, kClocksOfFirstWave = 1.6;
  constexpr double kRowsPerSm = 32, kElementsPerSm = 16384;  // a warp per row; 64 warps
  const double wave =
      gpu.num_sms * (rows ? kRowsPerSm * static_cast<double>(space.combined) : kElementsPerSm);
  const double share_of_first = std::min(1.0, wave / std::max(1.0, space.elements()));
  const double peak_of_clock =
      gpu.peak_tflop_per_s.fp32.value_or(0) * 1e6 / (gpu.num_sms * gpu.boost_clock_mhz);
  return std::max(kClocks, kClocksOfFirstWave * share_of_first) * peak_of_clock / 2;
}

bool draws_random_numbers(std::string_view name) {
  if (!name.starts_with("triton")) return false;
  for (const std::string_view op : {"_dropout", "_bernoulli", "_rand", "_uniform", "_normal"}) {
    for (auto at = name.find(op); at != name.npos; at = name.find(op, at + 1)) {
      const std::string_view rest = name.substr(at + op.size());
      if (rest.empty() || (rest.starts_with('_') && !rest.starts_with("_backward"))) return true;
    }
  }
  return false;
}

/// From the integers after the tensors. Observers also record the stream, a pointer or 0, and
/// kernels of random numbers take their place in the list of seeds first.
Space space_of(const OpView& op) {
  constexpr std::int64_t kLargestSize = std::int64_t{1} << 40;
  std::vector<std::int64_t> sizes;
  for (const Argument& argument : op.inputs()) {
    const bool is_size = argument.kind == Argument::Kind::kInt && argument.integer > 0 &&
                         argument.integer < kLargestSize;
    if (is_size) sizes.push_back(argument.integer);
  }
  if (sizes.empty()) return {};
  const std::int64_t last = sizes.back();
  if (sizes.size() == 1) return {.results = last};
  const std::int64_t before = sizes[sizes.size() - 2];
  if (combines_rows(op.name())) return {.results = before, .combined = last};
  // Tiles of two axes; no tensor is as large where the integer before is no size.
  bool is_whole = false;
  const auto compare = [&](const Tensor& t) { is_whole |= t.numel == before * last; };
  for_each_gpu_tensor(op, op.inputs(), compare);
  for_each_gpu_tensor(op, op.outputs(), compare);
  return {.results = is_whole ? before * last : last};
}

double moved_bytes(const Tensor& tensor, const Space& space) {
  if (space.results == 0) return bytes(tensor);
  return std::min(bytes(tensor), space.elements() * tensor.item_size);
}

/// Names also list the ops that made a kernel's inputs: a loop with few results is taken to sum.
double flop_of_element(std::string_view name, const Gpu& gpu, DType dtype, double written,
                       const Space& space) {
  const bool leaves_few = 2 * written < space.elements() * size_in_bytes(dtype);
  if (name.starts_with("triton_red") && leaves_few) return 1;
  const double ops = flop_of_fused_ops(name);
  if (!draws_random_numbers(name)) return ops;
  return ops + flop_of_random_number(gpu, space, combines_rows(name));
}

bool lower_triton(const OpView& op, const Gpu& gpu, std::vector<KernelWork>& kernels) {
  const std::string_view name = op.name();
  if (name.starts_with("triton_tem")) return lower_template(op, gpu, kernels);
  const Traffic t = traffic(op);
  if (!t.any) return false;
  Space space = space_of(op);
  double read = 0, written = 0, last = 0;
  for_each_gpu_tensor(op, op.inputs(), [&](const Tensor& tensor) {
    last = moved_bytes(tensor, space);
    read += last;
  });
  for_each_gpu_tensor(op, op.outputs(),
                      [&](const Tensor& tensor) { written += moved_bytes(tensor, space); });
  if (written == 0) {
    written = last;
    read -= last;
  }
  if (space.results == 0) space.results = t.output_elements;
  const double elements = space.elements();
  if (name.starts_with("triton_for")) {
    kernels.push_back(make_work(KernelFamily::kOptimizer, t.dtype, read, written,
                                flop_of_fused_ops(name) * elements));
    return true;
  }
  const double flop = flop_of_element(name, gpu, t.dtype, written, space);
  KernelWork work = make_work(KernelFamily::kElementwise, t.dtype, read, written, flop * elements);
  work.layout = Layout::kGenerated;
  if (combines_rows(name)) {
    work.shape = RowShape{.rows = std::max<std::int64_t>(1, space.results), .cols = space.combined};
  }
  kernels.push_back(work);
  return true;
}

}  // namespace

std::span<const NamedLower> triton_rules() {
  static constexpr NamedLower kRules[] = {
      {"triton", lower_triton},
  };
  return kRules;
}

}  // namespace perfmodel::ops
