#include "layout_arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <ranges>
#include <type_traits>
#include <utility>

#include "arguments.hpp"
#include "terminal/cli11.hpp"

namespace perfmodel::cli {
namespace {

Unexpected bad_layout(std::string message) {
  return fail(ErrorCode::kImpossible, std::move(message));
}

// A flag that tells whether it was given at all.
void add_choice(CLI::App& app, const LayoutField& field, std::optional<bool>& value) {
  const std::string flag = flag_of(field.name);
  app.add_flag_function(
      flag + ",!--no-" + flag.substr(2), [&value](std::int64_t count) { value = count > 0; },
      std::string(field.help));
}

void check(CLI::Option& option, const LayoutField& field) {
  if (std::isfinite(field.range.low)) option.check(between(field.range.low, field.range.high));
  option.type_name(std::string(field.takes));  // a check writes its own
  if (field.choices.empty()) return;
  std::vector<std::string> choices;
  for (const auto word : std::views::split(field.choices, ' ')) {
    choices.emplace_back(word.begin(), word.end());
  }
  option.check(CLI::IsMember(choices))->type_name(std::string(field.takes));
}

void add_field(CLI::App& app, const LayoutField& field, LayoutArguments& arguments) {
  const std::string flag = flag_of(field.name), help(field.help);
  const auto add_list = [&](auto list) {
    if constexpr (!std::is_same_v<decltype(list), std::monostate>) {
      check(*app.add_option(flag, arguments.lists.*list, help)->delimiter(','), field);
    }
  };
  const auto add_value = [&](auto member) {
    auto& value = arguments.*member;
    if constexpr (std::is_same_v<decltype(value), std::optional<bool>&>) {
      add_choice(app, field, value);
    } else {
      CLI::Option* option = app.add_option(flag, value, help);
      if constexpr (std::is_same_v<decltype(value), std::string&>) {
        if (!value.empty()) option->capture_default_str();
      }
      check(*option, field);
    }
  };
  if (field.list.index() > 0) {
    std::visit(add_list, field.list);
  } else {
    std::visit(add_value, field.member);
  }
}

/// Adds the fields from `first` to `last`, in the order of their table.
void add_fields(CLI::App& app, LayoutArguments& arguments, std::string_view first,
                std::string_view last) {
  for (const LayoutField* field = find_layout_field(first);; ++field) {
    add_field(app, *field, arguments);
    if (field->name == last) return;
  }
}

}  // namespace

void add_layout_options(CLI::App& app, LayoutArguments& arguments) {
  app.add_option("model", arguments.model,
                 "A known model (llama3-70b, gpt2-xl, ...) or a Hugging Face config.json; without "
                 "it the sizes are given")
      ->type_name("MODEL");
  add_fields(app, arguments, "layers", "next_tokens");
  app.add_option("--gpu", arguments.gpu, "GPU, by name")->required()->type_name("GPU");
  app.add_option("--topology", arguments.topology, "Nodes and network (what the GPU sits in)")
      ->type_name("NAME");
  app.add_option("--collectives", arguments.collectives,
                 "Price collectives by ASTRA-sim's rules on the network of this file")
      ->type_name("FILE");
  add_fields(app, arguments, "software", "frozen_bits");
  add_scale_host(app, arguments.host_scale);
  add_fields(app, arguments, "dp", "schedule");
  app.add_option_function<std::string>(
         "--stages",
         [&arguments](const std::string& text) { arguments.searched_stages = text == "searched"; },
         "Layers of pipeline stages: those of the program (equal), or the fastest (searched)")
      ->check(CLI::IsMember({"equal", "searched"}))
      ->type_name("KIND");
  app.add_option(
         "--measured", arguments.measured,
         "Steps measured on this machine that calibrate it: a table (CSV), a Kineto trace of "
         "one step, or a machine's file or name")
      ->type_name("FILE");
  app.add_option(
         "--measured-layout", arguments.measured_layout,
         "Layout of a measured trace: tp=8,pp=4,micro_batch=1 (the one that is asked about)")
      ->type_name("PARTS");
  app.add_flag("--json", arguments.json, "Print JSON");
}

Result<LayoutSpace> layout_space(const LayoutArguments& arguments) {
  const LayoutLists& lists = arguments.lists;
  LayoutSpace space{.dp = lists.dp,
                    .tp = lists.tp,
                    .pp = lists.pp,
                    .vp = lists.vp,
                    .micro_batch = lists.micro_batch,
                    .cp = lists.cp,
                    .ep = lists.ep};
  for (const std::string& text : lists.zero) {
    const auto sharding = parse_sharding(text);
    if (!sharding) return Unexpected{sharding.error()};
    space.zero.push_back(*sharding);
  }
  for (const std::string& text : lists.recompute) {
    const auto recompute = parse_recompute(text);
    if (!recompute) return Unexpected{recompute.error()};
    space.recompute.push_back(*recompute);
  }
  space.sequence_parallel = arguments.sequence_parallel;
  for (const std::string& text : lists.schedule) {
    const auto order = parse_pipeline_order(text);
    if (!order) return Unexpected{order.error()};
    space.order.push_back(*order);
  }
  space.searched_stages = arguments.searched_stages;
  return space;
}

Result<ParallelLayout> named_layout(const LayoutArguments& arguments) {
  LayoutAsk ask = arguments;
  for (const LayoutField& field : layout_fields()) {
    std::size_t found = 0;
    const auto take = [&](auto list) {
      if constexpr (!std::is_same_v<decltype(list), std::monostate>) {
        const auto& values = arguments.lists.*list;
        using Value = std::remove_cvref_t<decltype(values.front())>;
        using Held = std::conditional_t<std::is_same_v<Value, std::string>, std::string,
                                        std::optional<std::int64_t>>;
        found = values.size();
        if (found == 1) ask.*std::get<Held LayoutAsk::*>(field.member) = values.front();
      }
    };
    std::visit(take, field.list);
    if (found > 1) {
      return bad_layout(fmt::format("{}: expected one value for one layout, found {}",
                                    flag_of(field.name), found));
    }
  }
  auto layout = layout_of(ask);
  if (layout) layout->searched_stages = arguments.searched_stages;
  return layout;
}

namespace {

/// Sets a part of a layout from text. False: no such part, or no value of it.
bool set_part(LayoutAsk& ask, std::string_view name, std::string_view text) {
  const LayoutField* field = find_layout_field(name);
  const bool is_part = field && field >= find_layout_field("dp") && !text.empty();
  if (!is_part) return false;
  if (const auto* count = std::get_if<std::optional<std::int64_t> LayoutAsk::*>(&field->member)) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return false;
    if (!(value >= 1 && static_cast<double>(value) <= field->range.high)) return false;
    ask.** count = value;
    return true;
  }
  if (const auto* choice = std::get_if<std::optional<bool> LayoutAsk::*>(&field->member)) {
    if (text != "0" && text != "1") return false;
    ask.** choice = text == "1";
    return true;
  }
  ask.*std::get<std::string LayoutAsk::*>(field->member) = text;
  return true;
}

}  // namespace

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

}  // namespace perfmodel::cli
