#include "rewrite_options.hpp"

#include <memory>
#include <optional>

#include "rewrite_flags.hpp"
#include "terminal/command_parser.hpp"

namespace perfmodel::cli {

const std::vector<RewriteOption>& rewrite_options() {
  static const std::vector<RewriteOption> options = {
      // One per line, in the order of --help.
      batch_option(),             //
      sequence_option(),          //
      precision_option(),         //
      channels_last_option(),     //
      in_place_option(),          //
      recompute_option(),         //
      checkpoint_option(),        //
      offload_option(),           //
      grad_dtype_option(),        //
      optimizer_option(),         //
      accumulate_option(),        //
      data_parallel_option(),     //
      tensor_parallel_option(),   //
      retarget_option(),          //
      fuse_tables_option(),       //
      fuse_elementwise_option(),  //
      fuse_option(),              //
      lstm_option(),              //
      hash_weights_option(),      //
      cuda_graphs_option(),       //
      compiled_option(),          //
      index_skew_option(),        //
      subgraph_option(),          //
      remove_option(),            //
      kernel_time_option(),       //
      scale_kernel_option(),
  };
  return options;
}

const RewriteOption* find_rewrite_option(std::string_view flag) {
  while (flag.starts_with('-')) flag.remove_prefix(1);
  for (const RewriteOption& option : rewrite_options()) {
    if (std::string_view(option.flag).substr(2) == flag) return &option;
  }
  return nullptr;
}

Result<NamedRewrite> named_rewrite(const RewriteOption& option, const std::string& text) {
  auto rewrite = option.parse(text);
  if (!rewrite) return Unexpected{rewrite.error()};
  return NamedRewrite{option.value.empty() ? option.flag : option.flag + " " + text,
                      std::move(*rewrite), option.of_ops_alone, option.launching};
}

std::string with_detail(const std::string& value, const RewriteOption::Detail& detail,
                        const std::string& text) {
  return value + ":" + detail.flag.substr(2) + "=" + text;
}

namespace {

// A rewrite whose value may still get details; they may stand in front of its flag, too.
struct OpenRewrite {
  std::string value, details;
  std::optional<std::size_t> position;  // among the rewrites

  void write(const RewriteOption& option, std::vector<NamedRewrite>& rewrites) {
    auto rewrite = named_rewrite(option, value + details);
    if (!rewrite) bad_usage(option.flag, to_string(rewrite.error()));
    rewrites[*position] = std::move(*rewrite);
  }
};

void add_detailed_option(CommandParser app, const RewriteOption& option,
                         std::vector<NamedRewrite>& rewrites) {
  const auto open = std::make_shared<OpenRewrite>();
  app.add_option_function<std::string>(
         option.flag,
         [&option, &rewrites, open](const std::string& text) {
           if (open->position) open->details.clear();  // those of the one before
           open->value = text;
           open->position = rewrites.size();
           rewrites.emplace_back();
           open->write(option, rewrites);
         },
         option.help)
      .type_name(option.value)
      .trigger_on_parse();
  for (const RewriteOption::Detail& detail : option.details) {
    app.add_option_function<std::string>(
           detail.flag,
           [&option, &rewrites, &detail, open](const std::string& text) {
             open->details = with_detail(open->details, detail, text);
             if (open->position) open->write(option, rewrites);
           },
           detail.help)
        .type_name(detail.value)
        .trigger_on_parse();
  }
}

}  // namespace

void add_rewrite_options(CommandParser app, std::vector<NamedRewrite>& rewrites,
                         RewriteFlags which) {
  for (const RewriteOption& option : rewrite_options()) {
    if (option.launching) continue;  // a file does not keep it
    if (which == RewriteFlags::kForBuild && !option.for_build) continue;
    if (!option.details.empty()) {
      add_detailed_option(app, option, rewrites);
      continue;
    }
    const auto take = [&option, &rewrites](const std::string& text) {
      auto rewrite = named_rewrite(option, text);
      if (!rewrite) bad_usage(option.flag, to_string(rewrite.error()));
      rewrites.push_back(std::move(*rewrite));
    };
    // Each value is taken as it is met, so that the list has the order of the command line.
    if (option.value.empty()) {
      app.add_flag_callback(
             option.flag, [take] { take(""); }, option.help)
          .trigger_on_parse();
    } else {
      app.add_option_function<std::string>(option.flag, take, option.help)
          .type_name(option.value)
          .trigger_on_parse();
    }
  }
}

}  // namespace perfmodel::cli
