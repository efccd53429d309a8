#include "train_arguments.hpp"

namespace perfmodel::cli {

CommandParser add_train_command(CommandParser parent,
                                const std::shared_ptr<TrainArguments>& arguments) {
  const CommandParser app =
      parent.add_subcommand("train", "Fits kernel models to measured kernels");
  app.add_option("DATA", arguments->data,
                 "Measured kernels (.csv or .csv.gz), or folders of them, see docs/formats.md");
  app.add_option("-o,--output FILE|FOLDER/", arguments->output,
                 "Model file to write, or a folder for one file per family and type");
  app.add_option("--rows", arguments->rows,
                 "Rows to fit: all; train: not NeuSight's llm shapes; paper: its own fitting set")
      .check(one_of({"all", "train", "paper"}))
      .capture_default_str();
  app.add_option("--family NAME", arguments->family, "Only kernels of this family");
  app.add_option("--op NAME", arguments->op, "Op of rows that name none");
  app.add_option("--dtype NAME", arguments->dtype, "Their element type");
  app.add_option("--gpu NAME", arguments->gpu,
                 "The GPU of all rows (default: the column device or gpu)");
  app.add_option("--seed", arguments->seed, "Seed of splits and trees").capture_default_str();
  app.add_option("--report DIR", arguments->report, "Folder for plots (SVG)");
  app.add_option("--note TEXT", arguments->note, "Licence and provenance, for the model card");
  app.add_flag("--grid", arguments->grid,
               "Choose rounds and depth from a small grid, by shapes kept out");
  app.add_flag("--no-validation", arguments->no_validation,
               "Fit only: no errors, ranges as wide as a factor of two");
  const Option few =
      app.add_option("--calibrate FEW.csv", arguments->calibrate,
                     "A few measured kernels of a new GPU: corrects the models of --model");
  const Option base = app.add_option("--model FILE", arguments->base, "Model file to calibrate");
  few.needs(base);
  base.needs(few);
  app.add_option(
         "--points N", arguments->points,
         "With --calibrate: only so many rows of each model and GPU, chosen by k-means; the "
         "others judge, before and after")
      .check(in_range(std::size_t{1}, std::size_t{1'000'000}))
      .needs(few);
  app.add_option("--few-shot GPU", arguments->few_shot,
                 "Study: error on this GPU, left out, against the number of measured kernels");
  app.add_flag("--json", arguments->json, "Print one JSON document");
  app.callback([arguments] {
    if (arguments->data.empty() && arguments->calibrate.empty()) {
      missing_argument("DATA");
    }
    if (!arguments->data.empty() && !arguments->calibrate.empty()) {
      bad_usage("--calibrate", "takes the place of DATA");
    }
    if (arguments->output.empty() && arguments->few_shot.empty()) {
      missing_argument("--output");
    }
  });
  return app;
}

}  // namespace perfmodel::cli
