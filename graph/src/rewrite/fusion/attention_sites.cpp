#include "attention_sites.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/contains.hpp"
#include "step/pattern.hpp"
#include "step/tensor_arguments.hpp"

namespace perfmodel {
namespace {

using MaskForm = AttentionMask::Form;
// They hand on their input, maybe in another type or order.
const std::vector<std::string_view> kHandOns = {"to",           "_to_copy",   "view",  "reshape",
                                                "_unsafe_view", "contiguous", "clone", "type_as"};

class AttentionReader {
 public:
  AttentionReader(const StepView& step, std::string& broken)
      : graph_(step.graph()), flow_(step.forward()), broken_(broken) {}

  /// The attention whose scores `softmax` turns into weights.
  std::optional<AttentionSite> around(std::int32_t softmax) {
    site_ = {.ops = {softmax}, .scale = 1.0};
    const auto& inputs = flow_.inputs(softmax);
    if (inputs.empty() || !scores(*inputs[0])) return std::nullopt;
    if (inputs.size() > 1) site_.masks.push_back({inputs[1], MaskForm::kHides});  // _masked_softmax
    if (!weigh_values(*flow_.outputs(softmax).front())) return std::nullopt;
    site_.q = behind_views(site_.q, nullptr, nullptr);
    site_.k = behind_views(site_.k, &site_.k_is_turned, &site_.k_ops);
    site_.v = behind_views(site_.v, nullptr, &site_.v_ops);
    std::ranges::sort(site_.ops);
    const std::array<const Version*, 1> kept = {site_.out};
    if (const auto outside = read_outside(flow_, site_.ops, kept)) {
      broken_if_first(fmt::format(
          "expected nothing inside of an attention to be read outside, "
          "found {} (node {}), which reads {}",
          graph_.name(outside->reader), graph_.node(outside->reader).id, graph_.name(outside->op)));
      return std::nullopt;
    }
    return fits() ? std::optional(std::move(site_)) : std::nullopt;
  }

 private:
  std::string_view name(std::int32_t op) const {
    std::string_view text = graph_.name(op);
    if (text.starts_with("aten::")) text.remove_prefix(6);
    if (text.ends_with('_')) text.remove_suffix(1);
    return text;
  }
  std::span<const std::int64_t> shape(const Version& version) const {
    return graph_.shape(graph_.tensors[version.tensor]);
  }
  std::int64_t size(const Version& version) const { return graph_.tensors[version.tensor].numel; }

  void broken_if_first(std::string why) {
    if (broken_.empty()) broken_ = std::move(why);
  }
  bool no(std::string_view expected, const Version& found) {
    broken_if_first(fmt::format("expected {}, found {}", expected,
                                found.op < 0 ? "a tensor from outside"
                                             : fmt::format("{} (node {})", graph_.name(found.op),
                                                           graph_.node(found.op).id)));
    return false;
  }

  // The number that a factory filled a tensor with.
  std::optional<double> constant(const Version& version) const {
    if (version.op < 0) return std::nullopt;
    const auto arguments = graph_.inputs(version.op);
    const std::string_view op = name(version.op);
    if (op == "full" && arguments.size() > 1) return number_of(arguments[1]);
    if (op == "scalar_tensor" && !arguments.empty()) return number_of(arguments[0]);
    return std::nullopt;
  }

  // Takes in a product with a number, or a quotient, of what `from` holds. A number may be a tensor
  // of one element whose id a larger one had before.
  const Version* scaled(std::int32_t op) {
    const auto& inputs = flow_.inputs(op);
    const auto arguments = graph_.inputs(op);
    if (arguments.size() < 2 || inputs.empty()) return nullptr;
    const Tensor* tensor = input_at(graph_, op, 1);
    if (tensor && tensor->numel != 1) return nullptr;
    const bool is_known = inputs.size() > 1 && size(*inputs[1]) == 1;
    const auto factor = !tensor    ? number_of(arguments[1])
                        : is_known ? constant(*inputs[1])
                                   : std::nullopt;
    if (!factor) {
      site_.scale.reset();
    } else if (site_.scale) {
      *site_.scale *= name(op) == "div" ? 1 / *factor : *factor;
    }
    return inputs[0];
  }

  // Follows scores back to their product.
  bool scores(const Version& version) {
    if (version.op < 0) return no("the product of queries and keys before a softmax", version);
    const std::string_view op = name(version.op);
    const auto& inputs = flow_.inputs(version.op);
    const auto sizes = shape(version);
    if (sizes.size() == 4) std::tie(site_.batch, site_.heads) = std::pair(sizes[0], sizes[1]);
    const AttentionSite before = site_;
    site_.ops.push_back(version.op);
    if (op == "matmul" || op == "bmm" || op == "baddbmm") return product(version);
    if (inputs.empty()) return no("the product of queries and keys before a softmax", version);
    if (contains(kHandOns, op) || op == "maximum" || op == "max" || op == "clamp")
      return scores(*inputs[0]);
    if (op == "mul" || op == "div") {
      if (const Version* from = scaled(version.op)) return scores(*from);
      return no("scores times a number", version);
    }
    if (op == "add" || op == "sub") {
      for (std::size_t at = 0; at < std::min<std::size_t>(inputs.size(), 2); ++at) {
        site_ = before;
        site_.ops.push_back(version.op);
        if (size(*inputs[at]) != size(version) || !scores(*inputs[at])) continue;
        if (inputs.size() > 1) site_.masks.push_back({inputs[1 - at], MaskForm::kAdds});
        return true;
      }
      return false;
    }
    if (op == "masked_fill" && inputs.size() > 1) {
      site_.masks.push_back({inputs[1], MaskForm::kHides});
      return scores(*inputs[0]);
    }
    if (op == "where" && inputs.size() > 1) {
      const std::size_t at = size(*inputs[1]) == size(version) ? 1 : inputs.size() - 1;
      site_.masks.push_back({inputs[0], at == 1 ? MaskForm::kKeeps : MaskForm::kHides});
      return scores(*inputs[at]);
    }
    return no("masks, scales and casts of scores before a softmax", version);
  }

  bool product(const Version& version) {
    const auto& inputs = flow_.inputs(version.op);
    const auto arguments = graph_.inputs(version.op);
    const bool adds = name(version.op) == "baddbmm";
    const std::size_t first = adds ? 1 : 0;
    if (inputs.size() < first + 2) return no("two operands", version);
    site_.q = inputs[first];
    site_.k = inputs[first + 1];
    site_.k_is_turned = true;
    if (!adds || arguments.size() < 5) return true;
    if (number_of(arguments[3]).value_or(1) != 0) {
      site_.masks.push_back({inputs[0], MaskForm::kAdds});
    }
    if (const auto alpha = number_of(arguments[4]); alpha && site_.scale) *site_.scale *= *alpha;
    return true;
  }

  // Follows weights to their product with the values.
  bool weigh_values(const Version& weights) {
    const Version* last = &weights;
    while (true) {
      if (last->readers.size() != 1) {
        return no("one op that reads the weights of an attention", *last);
      }
      const std::int32_t op = last->readers.front();
      const auto& inputs = flow_.inputs(op);
      site_.ops.push_back(op);
      if (flow_.outputs(op).empty()) return no("the product with the values", *last);
      const Version& made = *flow_.outputs(op).front();
      if (name(op) == "matmul" || name(op) == "bmm") {
        if (inputs.size() != 2 || inputs[0] != last) return no("weights times values", made);
        site_.v = inputs[1];
        site_.out = &made;
        return true;
      }
      if (name(op) == "dropout" || name(op) == "native_dropout") {
        const auto arguments = graph_.inputs(op);
        if (arguments.size() > 2 && arguments[2].integer != 0) {
          site_.dropout = number_of(arguments[1]).value_or(0);
        }
      } else if (!contains(kHandOns, name(op))) {
        return no("dropout and casts between a softmax and the product with the values", made);
      }
      last = &made;
    }
  }

  bool swaps_last(const Version& version) const {
    const std::string_view op = name(version.op);
    const auto arguments = graph_.inputs(version.op);
    const auto rank = static_cast<std::int64_t>(shape(version).size());
    if (op == "mT") return true;
    if (op != "transpose" || arguments.size() < 3) return false;
    const auto axis = [&](std::size_t at) {
      const std::int64_t given = arguments[at].integer;
      return given < 0 ? given + rank : given;
    };
    return axis(1) + axis(2) == 2 * rank - 3 && axis(1) != axis(2) && axis(1) + 2 >= rank;
  }

  // [B, H, ...] through views that are each read once; none: `from` is [N, ...] by itself.
  std::size_t views_to_heads(const Version& from) const {
    const Version* at = &from;
    for (std::size_t count = 0; count < 4 && at->op >= 0 && at->readers.size() == 1; ++count) {
      if (!contains(kHandOns, name(at->op)) || flow_.inputs(at->op).empty()) return 0;
      const Version& next = *flow_.inputs(at->op).front();
      const auto now = shape(from), before = shape(next);
      if (before.size() == 4) {
        return before[0] * before[1] == now[0] && before[3] == now[2] ? count + 1 : 0;
      }
      at = &next;
    }
    return 0;
  }

  // Takes in the ops that nothing else needs: scales, transposition, copies, heads as a batch.
  const Version* behind_views(const Version* at, bool* turned, std::vector<std::int32_t>* ops) {
    const auto take = [&](const Version* next) {
      site_.ops.push_back(at->op);
      if (ops) ops->push_back(at->op);
      at = next;
    };
    while (at->op >= 0 && !flow_.inputs(at->op).empty()) {
      const bool ours = std::ranges::all_of(
          at->readers, [&](std::int32_t reader) { return contains(site_.ops, reader); });
      if (!ours) break;
      const std::string_view op = name(at->op);
      const Version* input = flow_.inputs(at->op).front();
      if (turned && *turned && swaps_last(*at)) {
        take(input);
        *turned = false;
      } else if ((op == "mul" || op == "div") && size(*input) == size(*at) && turned_or_q(ops)) {
        const Version* from = scaled(at->op);
        if (!from) break;
        take(from);
      } else if ((op == "contiguous" || op == "clone") && shape(*at).size() == 4) {
        take(input);
      } else if (shape(*at).size() == 3) {
        const std::size_t views = views_to_heads(*at);
        if (views == 0) break;
        for (std::size_t i = 0; i < views; ++i) take(flow_.inputs(at->op).front());
      } else {
        break;
      }
    }
    return at;
  }
  // Values are not scaled.
  bool turned_or_q(const std::vector<std::int32_t>* ops) const { return ops != &site_.v_ops; }

  bool fits() {
    if (has_operands(graph_, site_)) return true;
    return no("queries, keys and values [B, H, S, D]", *site_.q);
  }

  const ExecutionGraph& graph_;
  const ForwardFlow& flow_;
  std::string& broken_;
  AttentionSite site_;
};

}  // namespace

AttentionSites find_attention(const StepView& step) {
  AttentionSites found;
  AttentionReader reader(step, found.broken);
  for (const std::int32_t op : step.forward().ops()) {
    const std::string_view name = step.graph().name(op);
    std::optional<AttentionSite> site;
    if (step.forward().outputs(op).empty()) continue;
    if (name == "aten::softmax" || name == "aten::_softmax" || name == "aten::_masked_softmax" ||
        name == "aten::_safe_softmax") {
      site = reader.around(op);
    } else if (name == "aten::scaled_dot_product_attention") {
      site = attention_call(step, op);
    }
    if (site) found.sites.push_back(std::move(*site));
  }
  return found;
}

}  // namespace perfmodel
