#include "eval_arguments.hpp"

#include "cli/shared/kernel_models_option.hpp"

namespace perfmodel::cli {

CommandParser add_eval_command(CommandParser parent,
                               const std::shared_ptr<EvalArguments>& arguments) {
  CommandParser app =
      parent.add_subcommand("eval", "Judges kernel models on measured kernels or whole models");
  app.add_argument("FILES", arguments->files,
                   "Measured kernels; with --graphs: operator graphs, graphs and latencies");
  app.add_option("--model FILE", arguments->model, "Model file to judge");
  app.add_flag("--graphs", arguments->graphs,
               "Whole models: OPGRAPHS GRAPHS E2E, aggregated as docs/formats.md says");
  add_models_option(app, arguments->models,
                    "With --graphs and without --model: learned, heuristic or roofline");
  app.add_option("--kernel-gap US", arguments->kernel_gap_us,
                 "With --graphs: what passes between a kernel and the next one of its stream")
      .check(in_range(0.0, 1e4))
      .capture_default_str();
  app.add_option("--shapes", arguments->shapes, "Rows of NeuSight's shape sets: all, train, llm")
      .check(one_of({"all", "train", "llm"}))
      .capture_default_str();
  app.add_option("--min-us", arguments->min_us, "Only rows that took at least this long");
  app.add_option("--gpu NAME", arguments->gpu, "GPU of rows that name none");
  app.add_option("--op NAME", arguments->op, "Op of rows that name none");
  app.add_option("--dtype NAME", arguments->dtype, "Their element type");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] {
    if (arguments->graphs && arguments->files.size() != 3) {
      bad_usage("--graphs", "takes three files: OPGRAPHS GRAPHS E2E");
    }
    if (!arguments->graphs && arguments->kernel_gap_us > 0) {
      bad_usage("--kernel-gap", "is for --graphs");
    }
    if (!arguments->graphs && arguments->model.empty()) missing_argument("--model");
  });
  return app;
}

}  // namespace perfmodel::cli
