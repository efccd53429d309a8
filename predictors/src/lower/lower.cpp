#include "perfmodel/predictors/detail/lower.hpp"

#include <algorithm>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "lower/fused_anchor.hpp"
#include "lower/ops/families.hpp"
#include "lower/ops/rule_support.hpp"
#include "ops/catalogue.hpp"

namespace perfmodel {
namespace {

bool is_kernel_like(const TemplateCall& call) { return call.kind != TemplateCall::Kind::kSync; }

// The runtime calls that start kernels where no template names them.
struct MadeCalls {
  static constexpr std::size_t kCopyKinds = 4;
  TemplateCall kernel, set, collective, synchronize;
  TemplateCall copies[kCopyKinds][2];  // pinned, pageable
  TemplateCall asides[kCopyKinds];

  explicit MadeCalls(bool amd) {
    kernel.call = collective.call = amd ? "hipLaunchKernel" : "cudaLaunchKernel";
    collective.collective = true;
    collective.stream = 1;
    set.kind = TemplateCall::Kind::kSet;
    set.call = amd ? "hipMemsetAsync" : "cudaMemsetAsync";
    synchronize.kind = TemplateCall::Kind::kSync;
    synchronize.sync = SyncKind::kStream;
    synchronize.call = amd ? "hipStreamSynchronize" : "cudaStreamSynchronize";
    for (std::size_t kind = 0; kind < kCopyKinds; ++kind) {
      for (const bool pageable : {false, true}) {
        TemplateCall& copy = copies[kind][pageable];
        copy.kind = TemplateCall::Kind::kCopy;
        copy.copy = static_cast<CopyKind>(kind);
        copy.pageable = pageable;
        copy.blocking = pageable && copy.copy == CopyKind::kDeviceToHost;
        copy.call = amd ? "hipMemcpyWithStream" : "cudaMemcpyAsync";
      }
      asides[kind] = copies[kind][false];
      asides[kind].stream = 2;  // 1 is for collectives
    }
  }

  static const MadeCalls& of(const Gpu& gpu) {
    static const MadeCalls nvidia(false), amd(true);
    return gpu.vendor == "amd" ? amd : nvidia;
  }

  const TemplateCall& call_for(const KernelWork& work) const {
    switch (work.family) {
      case KernelFamily::kCopy: {
        const auto& shape = std::get<CopyShape>(work.shape);
        if (shape.aside) return asides[static_cast<std::size_t>(shape.kind)];
        return copies[static_cast<std::size_t>(shape.kind)][shape.pageable];
      }
      case KernelFamily::kSet: return set;
      case KernelFamily::kCollective: return collective;
      default: return kernel;
    }
  }
};

// A kernel whose name tells that it does the main part of an op of this family, for ops that launch
// more kernels than the rule knows (layout changes, split-K sums, set-up kernels).
bool names_family(std::string_view kernel, KernelFamily family) {
  const auto has = [kernel](std::string_view part) {
    return kernel.find(part) != std::string_view::npos;
  };
  switch (family) {
    case KernelFamily::kGemm:
    case KernelFamily::kGroupedGemm:
      return has("gemm") || has("Cijk") || has("gemv") || has("cutlass") ||
             (kind_of_kernel(kernel) == "gemm" && !has("splitKreduce"));
    case KernelFamily::kConvolution:
      return has("conv") || has("winograd") || has("scudnn") || has("gemm") || has("grad") ||
             has("fft");
    case KernelFamily::kEmbeddingForward: return has("embedding") && has("forward");
    case KernelFamily::kEmbeddingBackward: return has("embedding") && has("backward");
    case KernelFamily::kNorm: return has("bn_") || has("norm");
    case KernelFamily::kSort: return has("Sort") || has("sort");
    case KernelFamily::kReduction: return has("reduce");
    case KernelFamily::kCollective: return is_collective_kernel(kernel);
    default: return false;
  }
}

// Keeps the node's kernel calls that do the rule's work, one per piece: all in order if the numbers
// agree; else the calls named like the family, else the longest call, else the last ones.
void choose_main_calls(const std::vector<LoweredCall>& calls, const std::vector<KernelWork>& work,
                       std::vector<std::size_t>& kernels) {
  if (kernels.size() <= work.size()) return;
  std::vector<std::size_t> chosen;
  for (std::size_t call : kernels) {
    if (chosen.size() < work.size() &&
        names_family(calls[call].call->kernel, work[chosen.size()].family)) {
      chosen.push_back(call);
    }
  }
  const auto longest =
      std::ranges::find_if(kernels, [&](std::size_t call) { return calls[call].call->longest; });
  if (longest != kernels.end() && chosen.size() < work.size() &&
      std::ranges::find(chosen, *longest) == chosen.end()) {
    chosen.push_back(*longest);
  }
  for (std::size_t i = kernels.size(); i-- > 0 && chosen.size() < work.size();) {
    if (std::find(chosen.begin(), chosen.end(), kernels[i]) == chosen.end()) {
      chosen.push_back(kernels[i]);
    }
  }
  std::sort(chosen.begin(), chosen.end());
  kernels = std::move(chosen);
}

void merge(KernelWork& into, const KernelWork& from) {
  into.flop += from.flop;
  into.bytes_read += from.bytes_read;
  into.bytes_written += from.bytes_written;
}

// Compatible kinds: a copy call cannot do a kernel's work and the reverse.
bool can_do(const TemplateCall& call, const KernelWork& work) {
  const bool copy_call = call.kind == TemplateCall::Kind::kCopy;
  const bool set_call = call.kind == TemplateCall::Kind::kSet;
  if (copy_call) return work.family == KernelFamily::kCopy;
  if (set_call) return work.family == KernelFamily::kSet;
  return true;
}

// A kernel that is not in the trace has no name.
bool launches_collective(const LaunchTemplate& calls) {
  return std::ranges::any_of(calls, [](const TemplateCall& call) {
    return call.kind == TemplateCall::Kind::kKernel && (call.collective || call.kernel.empty());
  });
}

void skew_lookups(std::span<KernelWork> kernels, double exponent) {
  for (KernelWork& work : kernels) {
    if (auto* lookups = std::get_if<EmbeddingShape>(&work.shape)) lookups->zipf_exponent = exponent;
    auto* rows = std::get_if<RowShape>(&work.shape);
    if (rows && work.family == KernelFamily::kIndex) rows->zipf_exponent = exponent;
  }
}

// Adds the work of pointwise ops to the kernel in which they run.
void add_fused_ops(const ExecutionGraph& graph, const Node& node, const FusedAnchor& fused,
                   std::vector<KernelWork>& kernels) {
  if (kernels.empty()) return;
  KernelWork& last = kernels.back();  // which writes the result
  const auto bytes_of = [&](std::span<const Argument> arguments) {
    double bytes = 0;
    for_each_tensor(graph, arguments, [&](const Tensor& tensor) {
      if (tensor.on_gpu()) bytes += static_cast<double>(tensor.bytes());
    });
    return Bytes{bytes};
  };
  last.bytes_read += bytes_of(graph.inputs(node).last(fused.read));
  const auto outputs = graph.outputs(node);
  last.bytes_written += bytes_of(outputs.last(fused.written));
  for (const Argument& output : outputs) {
    if (output.kind != Argument::Kind::kTensor) continue;
    const auto elements = static_cast<double>(graph.tensors[output.index].numel);
    last.flop += Flop{ops::flop_of_fused_ops(fused.ops) * elements};
    return;
  }
}

void add_calls(std::int32_t node, const LaunchTemplate& list, std::vector<LoweredCall>& calls) {
  std::uint16_t ordinal = 0;
  for (const TemplateCall& call : list) {
    calls.push_back({.call = &call,
                     .node = node,
                     .ordinal = ordinal++,
                     .after_children = call.after_children,
                     .inferred = is_kernel_like(call)});
  }
}

OpKind kind_of(const ExecutionGraph& graph, const Node& node) {
  const Op* row = find_op(graph.name(node));
  return row ? row->kind : OpKind::kComposite;
}

// Tracks what launches below an op do to its results and to the buffers that it allocates.
class WrittenStorages {
 public:
  WrittenStorages(const ExecutionGraph& graph, const Node& op) : graph_(graph), op_(op) {
    const auto outputs = graph.outputs(op), inputs = graph.inputs(op);
    const bool in_place = graph.name(op).ends_with('_');
    watch(outputs, State::kNew);
    for_each_tensor(graph, inputs, [this](const Tensor& t) { open_.erase(t.storage_id); });
    if (in_place && !inputs.empty()) watch(inputs.first(1), State::kFilled);
    for (const std::int32_t child : graph.children(op)) {
      const Node& made = graph.node(child);
      if (kind_of(graph, made) == OpKind::kAllocation) watch(graph.outputs(made), State::kBuffer);
    }
  }

  /// False: it only fills memory.
  bool launch(const Node& launcher) {
    const bool fills = kind_of(graph_, launcher) == OpKind::kFill;
    if (!fills) find_early_reads(launcher);
    for (const Node* at = &launcher; at != &op_ && !open_.empty(); at = &graph_.node(at->parent)) {
      const auto touch = [&](const Tensor& tensor) {
        const auto found = open_.find(tensor.storage_id);
        if (found == open_.end()) return;
        if (!fills || found->second == State::kBuffer) {
          open_.erase(found);
        } else {
          found->second = State::kFilled;
        }
      };
      for_each_tensor(graph_, graph_.inputs(*at), touch);
      for_each_tensor(graph_, graph_.outputs(*at), touch);
    }
    return !fills;
  }

  bool all_written() const { return open_.empty(); }
  bool read_too_early() const { return read_too_early_; }

 private:
  enum class State { kNew, kBuffer, kFilled };

  void watch(std::span<const Argument> tensors, State state) {
    for_each_tensor(graph_, tensors, [&](const Tensor& tensor) {
      const bool counts = tensor.on_gpu() && tensor.storage_id != 0 && tensor.numel > 0;
      if (counts) open_.try_emplace(tensor.storage_id, state);
    });
  }

  // Ops without results write to their arguments.
  void find_early_reads(const Node& reader) {
    const auto inputs = graph_.inputs(reader), outputs = graph_.outputs(reader);
    const OpKind kind = kind_of(graph_, reader);
    const bool writes_arguments =
        reader.comm >= 0 || outputs.empty() ||
        graph_.names.text(reader.op_schema).find("!)") != std::string::npos;
    const bool overwrites = kind == OpKind::kCopy || kind == OpKind::kRandom;
    const bool in_place = graph_.name(reader).ends_with('_');
    if (in_place ? overwrites : writes_arguments) return;
    std::unordered_set<std::int64_t> results;
    for_each_tensor(graph_, outputs, [&](const Tensor& t) { results.insert(t.storage_id); });
    for_each_tensor(graph_, inputs, [&](const Tensor& tensor) {
      const auto found = open_.find(tensor.storage_id);
      if (found == open_.end() || found->second == State::kFilled) return;
      read_too_early_ |= in_place || !results.contains(tensor.storage_id);
    });
  }

  const ExecutionGraph& graph_;
  const Node& op_;
  std::unordered_map<std::int64_t, State> open_;
  bool read_too_early_ = false;
};

// The node and all nodes above it.
void mark_path(const ExecutionGraph& graph, std::int32_t node,
               std::vector<LoweringFacts::Node>& facts) {
  while (node >= 0 && !facts[node].reaches_gpu) {
    facts[node].reaches_gpu = true;
    node = graph.node(node).parent;
  }
}

// Sparse tensors name no device: an op that has no others is where its children are.
bool touches_gpu(const ExecutionGraph& graph, const Node& node) {
  bool on_gpu = false, on_cpu = false, has_tensors = false;
  const auto look = [&](const Tensor& tensor) {
    on_gpu |= tensor.on_gpu();
    on_cpu |= tensor.on_cpu();
    has_tensors = true;
  };
  const auto look_at = [&](const Node& at) {
    for_each_tensor(graph, graph.inputs(at), look);
    for_each_tensor(graph, graph.outputs(at), look);
  };
  look_at(node);
  if (on_gpu || on_cpu || !has_tensors || node.is_label) return on_gpu;
  for (const std::int32_t child : graph.children(node)) look_at(graph.node(child));
  return on_gpu;
}

bool waits_for_collective(const ExecutionGraph& graph, const Node& node) {
  return std::ranges::any_of(graph.children(node), [&](std::int32_t child) {
    const Node& at = graph.node(child);
    return (at.comm >= 0 && graph.comm_records[at.comm].collective == "wait") ||
           waits_for_collective(graph, at);
  });
}

}  // namespace

LoweringFacts LoweringFacts::of(const ExecutionGraph& graph, const LaunchTemplates* templates,
                                const OpRuleRegistry& rules) {
  LoweringFacts made;
  made.nodes.resize(graph.nodes.size());
  const auto partners = forward_partners(graph);
  std::vector<std::optional<const OpRule*>> rule_by_name(graph.names.size());
  std::vector<std::optional<bool>> known_by_name(graph.names.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const perfmodel::Node& node = graph.nodes[i];
    Node& facts = made.nodes[i];
    facts.partner = partners[i];
    facts.touches_gpu = touches_gpu(graph, node);
    if (!node.is_label && facts.touches_gpu) {
      if (graph.names.text(node.kernel_backend) == "triton") {
        facts.rule = rules.find("triton");
      } else {
        auto& rule = rule_by_name[node.name];
        if (!rule) rule = rules.find(graph.name(node));
        facts.rule = *rule;
      }
    }
    if (facts.rule) {
      const auto [schema, added] = made.schemas.try_emplace(node.op_schema);
      if (added) schema->second = parameter_names(graph.names.text(node.op_schema));
      facts.launches_nothing = facts.rule->launches_nothing({graph, node});
      facts.has_odd_type = !facts.launches_nothing && ops::has_odd_type({graph, node});
    }
    auto& known = known_by_name[node.name];
    if (!known) known = rules.find(graph.name(node)) || find_op(graph.name(node));
    facts.is_known = *known || facts.rule || node.is_label;
    if (facts.touches_gpu) mark_path(graph, static_cast<std::int32_t>(i), made.nodes);
    if (!templates) continue;
    TemplateKeys keys = template_keys(graph, node);
    facts.devices_key = keys[static_cast<std::size_t>(TemplateLevel::kDevices)];
    facts.found = templates->find(keys, TemplateLevel::kDevices);
  }
  return made;
}

Lowering::Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
                   const OpRuleRegistry& rules, TemplateUse use)
    : graph_(graph),
      gpu_(gpu),
      templates_(templates),
      own_facts_(LoweringFacts::of(graph, templates, rules)),
      facts_(own_facts_),
      use_(use) {}

Lowering::Lowering(const ExecutionGraph& graph, const Gpu& gpu, const LaunchTemplates* templates,
                   const LoweringFacts& facts, TemplateUse use)
    : graph_(graph), gpu_(gpu), templates_(templates), facts_(facts), use_(use) {}

LoweredOp Lowering::lower(std::int32_t node) {
  LoweredOp op;
  lower(node, op);
  return op;
}

void Lowering::lower(std::int32_t node, LoweredOp& op) {
  op.node = node;
  op.calls.clear();
  op.work.clear();
  add_node(node, op);
}

void Lowering::add_node(std::int32_t index, LoweredOp& op) {
  const auto children = graph_.children(index);
  if (children.empty()) {
    own_calls(index, op, op.calls);
    return;
  }
  std::vector<LoweredCall> own;
  const bool is_told = own_calls(index, op, own);
  const std::size_t first = op.calls.size(), unmodelled = stats_.unmodelled.size();
  std::size_t next = 0;
  for (std::size_t child = 0; child <= children.size(); ++child) {
    for (; next < own.size() && (own[next].after_children <= child || child == children.size());
         ++next) {
      op.calls.push_back(own[next]);
    }
    if (child < children.size()) add_node(children[child], op);
  }
  if (is_told || unmodelled != stats_.unmodelled.size()) return;
  if (notes_) notes_->complete = false;
  if (is_blind(index, std::span(op.calls).subspan(first))) {
    stats_.unmodelled.push_back(index);
  }
}

// Whether an op in no table starts kernels that no child accounts for, as library functions around
// an aten::empty do: nothing below computes, or a result or buffer is never written, or is read
// before it is.
bool Lowering::is_blind(std::int32_t index, std::span<const LoweredCall> below) const {
  const Node& node = graph_.node(index);
  if (waits_for_collective(graph_, node)) return false;  // the collective wrote the result
  WrittenStorages storages(graph_, node);
  bool computes = false;
  for (const LoweredCall& call : below) {
    if (!is_kernel_like(*call.call)) continue;
    computes |= storages.launch(graph_.node(call.node));
    if (storages.read_too_early()) return true;
    if (computes && storages.all_written()) return false;
  }
  return !storages.all_written() || (!computes && facts_.nodes[index].reaches_gpu);
}

// Fills `kernels_`. False: there is no rule, or the arguments are not those that it expects.
bool Lowering::ask_rule(std::int32_t index, const LoweringFacts::Node& facts) {
  kernels_.clear();
  if (!facts.rule) return false;
  const Node& whole = graph_.node(index);
  if (facts.launches_nothing && whole.kernel_backend == 0) return true;
  std::optional<FusedAnchor> fused;
  if (whole.kernel_backend != 0) {
    fused = FusedAnchor::parse(graph_.names.text(whole.kernel_backend));
  }
  Node trimmed;
  if (fused) {  // the rule knows the op's own arguments
    if (fused->read > whole.inputs_count || fused->written >= whole.outputs_count) return false;
    trimmed = whole;
    trimmed.inputs_count -= fused->read;
    trimmed.outputs_count -= fused->written;
  }
  const Node& node = fused ? trimmed : whole;
  const OpView view{graph_, node, facts.partner >= 0 ? &graph_.node(facts.partner) : nullptr,
                    &facts_.schemas, fused ? std::nullopt : std::optional(facts.has_odd_type)};
  const bool spoke = facts.launches_nothing || facts.rule->add_kernels(view, gpu_, kernels_);
  if (!spoke) kernels_.clear();
  if (fused) add_fused_ops(graph_, whole, *fused, kernels_);
  if (node.index_zipf_exponent > 0) skew_lookups(kernels_, node.index_zipf_exponent);
  return spoke;
}

LaunchTemplates::Found Lowering::find_template(std::int32_t index, const LoweringFacts::Node& facts,
                                               bool rule_spoke) const {
  if (!templates_) return {};
  const Node& node = graph_.node(index);
  if (facts.found.calls && facts.found.level == TemplateLevel::kDevices) {
    const LaunchTemplate* exact =
        templates_->with_shapes(facts.devices_key, shapes_hash(graph_, node));
    if (exact) return {exact, TemplateLevel::kShapes};
  }
  LaunchTemplates::Found found = facts.found;
  // A name alone says little where a rule knows the arguments; tensors all on the CPU launch
  // nothing.
  const bool name_only =
      found.level == TemplateLevel::kName || found.level == TemplateLevel::kChildren;
  if (found.calls && name_only && (rule_spoke || (!facts.touches_gpu && node.inputs_count > 0))) {
    found.calls = nullptr;
  }
  return found;
}

// The record of a collective and the label inside it (nccl:*) are one collective. The label
// launches it if a template knows the label's launch; else the record does. -1: the record.
std::int32_t Lowering::label_that_launches(const Node& record) const {
  for (std::int32_t child : graph_.children(record)) {
    const LoweringFacts::Node& facts = facts_.nodes[child];
    const LaunchTemplates::Found found = find_template(child, facts, false);
    if (found.calls && launches_collective(*found.calls)) return child;
  }
  return -1;
}

LoweringNotes::Kernel Lowering::note_of(const KernelWork& work) const {
  return {work.family, work.shape.index(), &MadeCalls::of(gpu_).call_for(work)};
}

// Nodes without work of their own and without a template of their shapes have the same calls in all
// sizes.
void Lowering::note(std::int32_t index, bool rule_spoke, const LaunchTemplates::Found& found) {
  const LoweringFacts::Node& facts = facts_.nodes[index];
  const bool may_have_shapes = facts.found.calls && facts.found.level == TemplateLevel::kDevices;
  const bool may_launch =
      facts.rule && !(facts.launches_nothing && graph_.node(index).kernel_backend == 0);
  if (!may_launch && !may_have_shapes) return;
  notes_->nodes.push_back({index, may_launch, rule_spoke, kernels_.size(), found});
  if (!rule_spoke) return;  // work of fused ops may be there, and is not launched
  for (const KernelWork& work : kernels_) notes_->kernels.push_back(note_of(work));
}

bool Lowering::repeat(const LoweringNotes& notes, const std::vector<bool>* reshaped,
                      std::vector<KernelWork>& work) {
  auto expected = notes.kernels.begin();
  for (const LoweringNotes::Asked& was : notes.nodes) {
    const bool has_its_shapes = reshaped && !(*reshaped)[was.node];
    if (has_its_shapes && !was.asks_rule) continue;
    const LoweringFacts::Node& facts = facts_.nodes[was.node];
    const bool rule_spoke = ask_rule(was.node, facts);
    const LaunchTemplates::Found found =
        has_its_shapes ? was.found : find_template(was.node, facts, rule_spoke);
    if (rule_spoke != was.rule_spoke || kernels_.size() != was.kernels ||
        found.calls != was.found.calls || found.level != was.found.level) {
      return false;
    }
    if (!rule_spoke) continue;
    for (KernelWork& kernel : kernels_) {
      if (note_of(kernel) != *expected++) return false;
      work.push_back(std::move(kernel));
    }
  }
  return true;
}

bool Lowering::own_calls(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls) {
  const LoweringFacts::Node& facts = facts_.nodes[index];
  bool rule_spoke = ask_rule(index, facts);
  LaunchTemplates::Found found = find_template(index, facts, rule_spoke);
  if (notes_) note(index, rule_spoke, found);
  const Node& node = graph_.node(index);
  if (use_ == TemplateUse::kCalls) {
    if (found.calls && calls_of_another_program(index, found, rule_spoke, op, calls)) return true;
    found.calls = nullptr;
  } else if (!kernels_.empty() && kernels_.front().family == KernelFamily::kCollective) {
    launching_label_ = label_that_launches(node);
    const bool by_label = launching_label_ >= 0;
    if (found.calls && launches_collective(*found.calls) == by_label) found.calls = nullptr;
    if (by_label) {
      label_work_ = std::exchange(kernels_, {});
      rule_spoke = false;
    }
  } else if (index == launching_label_) {
    kernels_ = std::move(label_work_);
    rule_spoke = true;
    launching_label_ = -1;
  }
  if (found.calls) {
    // The template knows that there are kernels, but no rule knows their work.
    if (facts.rule && !rule_spoke && std::ranges::any_of(*found.calls, is_kernel_like)) {
      stats_.unmodelled.push_back(index);
    }
    ++stats_.nodes_by_level[static_cast<std::size_t>(found.level)];
    calls_of_template(index, *found.calls, rule_spoke, op, calls);
    return true;
  }
  if (rule_spoke) {
    ++stats_.nodes_by_rule;
    calls_of_rule(index, op, calls);
    return true;
  }
  // Composite ops that the catalogue knows do their work through children; so do others if the
  // children show it.
  if (facts.touches_gpu && !node.is_label && node.children_count == 0) {
    stats_.unmodelled.push_back(index);
  }
  return facts.is_known;
}

// False: the template says nothing that may be used here.
bool Lowering::calls_of_another_program(std::int32_t index, const LaunchTemplates::Found& found,
                                        bool rule_spoke, LoweredOp& op,
                                        std::vector<LoweredCall>& calls) {
  const Node& node = graph_.node(index);
  const std::size_t first = calls.size();
  if (rule_spoke) {
    calls_of_rule(index, op, calls);
    const auto made = std::span(calls).subspan(first);
    const auto launches = std::ranges::count_if(*found.calls, is_kernel_like);
    const auto known = std::ranges::count_if(
        made, [](const LoweredCall& call) { return is_kernel_like(*call.call); });
    if (launches != known) ++stats_.disagreements;
    const bool waits = known != std::ssize(made);
    std::uint16_t ordinal = static_cast<std::uint16_t>(made.size());
    for (const TemplateCall& call : *found.calls) {
      if (waits || is_kernel_like(call)) continue;
      calls.push_back({.call = &call,
                       .node = index,
                       .ordinal = ordinal++,
                       .after_children = call.after_children,
                       .on_stream = 0});
    }
    ++stats_.nodes_by_level[static_cast<std::size_t>(found.level)];
    return true;
  }
  // The label inside of a collective's record: the record launches it. Composite ops do their work
  // through children, which may be others here.
  const bool in_record = node.parent >= 0 && graph_.node(node.parent).comm >= 0;
  const bool other_children = node.children_count > 0 && found.level > TemplateLevel::kDevices;
  const LoweringFacts::Node& facts = facts_.nodes[index];
  if (in_record || other_children || node.is_label) return false;
  if (facts.rule && std::ranges::any_of(*found.calls, is_kernel_like)) {
    stats_.unmodelled.push_back(index);
  }
  add_calls(index, *found.calls, calls);
  for (LoweredCall& call : std::span(calls).subspan(first)) {
    if (!call.call->collective) call.on_stream = 0;
  }
  ++stats_.nodes_by_level[static_cast<std::size_t>(found.level)];
  return true;
}

void Lowering::calls_of_template(std::int32_t index, const LaunchTemplate& list, bool rule_spoke,
                                 LoweredOp& op, std::vector<LoweredCall>& calls) {
  const std::size_t first = calls.size();
  add_calls(index, list, calls);
  kernel_calls_.clear();
  for (std::size_t i = first; i < calls.size(); ++i) {
    if (is_kernel_like(*calls[i].call)) kernel_calls_.push_back(i);
  }
  if (rule_spoke && kernels_.size() != kernel_calls_.size()) ++stats_.disagreements;
  // The template knows the further kernels, and their names.
  std::erase_if(kernels_, [](const KernelWork& w) { return w.family == KernelFamily::kPart; });
  if (kernels_.empty() || kernel_calls_.empty()) return;
  choose_main_calls(calls, kernels_, kernel_calls_);
  for (std::size_t i = 0; i < kernels_.size(); ++i) {
    LoweredCall& call = calls[kernel_calls_[std::min(i, kernel_calls_.size() - 1)]];
    if (!can_do(*call.call, kernels_[i])) continue;
    if (call.work >= 0) {
      merge(op.work[call.work], kernels_[i]);
      continue;
    }
    call.work = static_cast<std::int32_t>(op.work.size());
    call.inferred = false;
    op.work.push_back(std::move(kernels_[i]));
  }
}

// PyTorch launches a collective in the label inside its record.
std::int32_t Lowering::label_of_collective(std::int32_t record) const {
  for (std::int32_t child : graph_.children(record)) {
    if (graph_.name(child).starts_with("nccl:")) return child;
  }
  return record;
}

void Lowering::calls_of_rule(std::int32_t index, LoweredOp& op, std::vector<LoweredCall>& calls) {
  if (kernels_.empty()) return;
  const Node& node = graph_.node(index);
  const MadeCalls& made = MadeCalls::of(gpu_);
  const auto after = static_cast<std::uint16_t>(std::min<std::size_t>(node.children_count, 0xffff));
  const std::int32_t launcher = node.comm >= 0 ? label_of_collective(index) : index;
  std::uint16_t ordinal = 0;
  for (KernelWork& work : kernels_) {
    const TemplateCall& call = made.call_for(work);
    calls.push_back({.call = &call,
                     .node = launcher,
                     .ordinal = ordinal++,
                     .after_children = after,
                     .work = static_cast<std::int32_t>(op.work.size())});
    op.work.push_back(std::move(work));
    // A pageable copy_ is followed by a synchronise of its stream.
    if (call.kind == TemplateCall::Kind::kCopy && call.pageable) {
      calls.push_back({.call = &made.synchronize,
                       .node = index,
                       .ordinal = ordinal++,
                       .after_children = after});
    }
  }
}

std::vector<LoweredCall> lower_label(const ExecutionGraph& graph, std::int32_t node,
                                     const LaunchTemplates* templates, LoweringStats& stats) {
  std::vector<LoweredCall> calls;
  if (!templates) return calls;
  const Node& label = graph.node(node);
  bool touches_gpu = false;
  const auto look = [&](const Tensor& tensor) { touches_gpu |= tensor.on_gpu(); };
  for_each_tensor(graph, graph.inputs(label), look);
  for_each_tensor(graph, graph.outputs(label), look);
  const LaunchTemplates::Found found = templates->find(template_keys(graph, label));
  const bool name_only =
      found.level == TemplateLevel::kName || found.level == TemplateLevel::kChildren;
  const bool on_host = !touches_gpu && label.inputs_count > 0;
  if (!found.calls || (name_only && on_host)) return calls;
  ++stats.nodes_by_level[static_cast<std::size_t>(found.level)];
  add_calls(node, *found.calls, calls);
  return calls;
}

}  // namespace perfmodel
