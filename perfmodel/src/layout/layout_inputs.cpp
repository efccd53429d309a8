#include "layout_inputs.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <variant>

#include "base/decimal_number.hpp"

namespace perfmodel {
namespace {

Unexpected bad_layout(std::string message) { return decline(std::move(message)); }

/// Sets a part of a layout from text. False: no such part, or no value of it.
bool set_part(LayoutAsk& ask, std::string_view name, std::string_view text) {
  const LayoutField* field = find_layout_field(name);
  return field && field >= find_layout_field("dp") && set_field(ask, *field, text);
}

/// Calls `visit` with each field of which a search has several values, with these and with the one
/// that a layout has.
template <class Visit>
void for_lists(LayoutInputs& inputs, Visit visit) {
  for (const LayoutField& field : layout_fields()) {
    if (const auto* names = std::get_if<std::vector<std::string> LayoutLists::*>(&field.list)) {
      visit(field, inputs.lists.**names, inputs.*std::get<std::string LayoutAsk::*>(field.member));
    } else if (const auto* counts =
                   std::get_if<std::vector<std::int64_t> LayoutLists::*>(&field.list)) {
      visit(field, inputs.lists.**counts,
            inputs.*std::get<std::optional<std::int64_t> LayoutAsk::*>(field.member));
    }
  }
}

}  // namespace

Result<LayoutSpace> layout_space(const LayoutInputs& inputs) {
  const LayoutLists& lists = inputs.lists;
  LayoutSpace space{.dp = lists.dp,
                    .tp = lists.tp,
                    .pp = lists.pp,
                    .vp = lists.vp,
                    .micro_batch = lists.micro_batch,
                    .cp = lists.cp,
                    .ep = lists.ep,
                    .sequence_parallel = inputs.sequence_parallel,
                    .searched_stages = inputs.searched_stages};
  PERFMODEL_TRY(common, layout_of(LayoutAsk{.etp = inputs.etp,
                                            .context = inputs.context,
                                            .context_balanced = inputs.context_balanced,
                                            .overlap_experts = inputs.overlap_experts,
                                            .async_tp = inputs.async_tp}));
  space.common = *common;
  std::optional<Error> error;
  const auto add = [&](const std::vector<std::string>& texts, auto parse, auto& to) {
    for (const std::string& text : texts) {
      const auto value = parse(text);
      if (value) to.push_back(*value);
      if (!value && !error) error = value.error();
    }
  };
  add(lists.zero, parse_sharding, space.zero);
  add(lists.recompute, parse_recompute, space.recompute);
  add(lists.schedule, parse_pipeline_order, space.order);
  add(lists.dispatcher, parse_dispatcher, space.dispatcher);
  add(lists.offload, parse_offload, space.offload);
  if (error) return Unexpected{*error};
  return space;
}

Result<LayoutSpace> layout_space(const LayoutAsk& parts) {
  LayoutInputs inputs;
  static_cast<LayoutAsk&>(inputs) = parts;
  for_lists(inputs, [](const LayoutField&, auto& values, const auto& value) {
    if constexpr (std::is_same_v<decltype(value), const std::string&>) {
      if (!value.empty()) values.push_back(value);
    } else {
      if (value) values.push_back(*value);
    }
  });
  return layout_space(inputs);
}

Result<ParallelLayout> named_layout(LayoutInputs inputs) {
  std::optional<Error> error;
  for_lists(inputs, [&](const LayoutField& field, const auto& values, auto& value) {
    if (values.size() == 1) value = values.front();
    if (values.size() < 2 || error) return;
    error = bad_layout(fmt::format("{}: expected one value for one layout, found {}",
                                   flag_of(field.name), values.size()))
                .value();
  });
  if (error) return Unexpected{*error};
  auto layout = layout_of(inputs);
  if (layout) layout->searched_stages = inputs.searched_stages;
  return layout;
}

Result<ParallelLayout> parse_layout(std::string_view text, std::optional<std::int64_t> world) {
  LayoutAsk ask;
  ask.world = world;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, end - begin);
    const std::size_t equals = std::min(part.find('='), part.size());
    begin = end + 1;
    if (set_part(ask, part.substr(0, equals), part.substr(std::min(equals + 1, part.size())))) {
      continue;
    }
    return bad_layout(fmt::format(
        "layout: expected parts such as tp=8,pp=4,vp=2,micro_batch=1,zero=1,recompute=full,"
        "sequence_parallel=1,schedule=1f1b, found \"{}\"",
        part));
  }
  return layout_of(ask);
}

}  // namespace perfmodel
