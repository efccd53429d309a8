#include "train_arguments.hpp"

namespace perfmodel::cli {

CommandParser add_train_command(CommandParser parent,
                                const std::shared_ptr<TrainArguments>& arguments) {
  const CommandParser app =
      parent.add_subcommand("train", "Fits kernel models to measured kernels");
  app.add_option("DATA", arguments->data,
                 "Measured kernels (.csv or .csv.gz), or folders of them, see docs/formats.md")
      .type_name("");
  app.add_option("-o,--output", arguments->output,
                 "Model file to write, or a folder for one file per family and type")
      .type_name("FILE|FOLDER/");
  app.add_option("--rows", arguments->rows,
                 "Rows to fit: all; train: not NeuSight's llm shapes; paper: its own fitting set")
      .check(one_of({"all", "train", "paper"}))
      .capture_default_str();
  app.add_option("--family", arguments->family, "Only kernels of this family").type_name("NAME");
  app.add_option("--op", arguments->op, "Op of rows that name none").type_name("NAME");
  app.add_option("--dtype", arguments->dtype, "Their element type").type_name("NAME");
  app.add_option("--gpu", arguments->gpu, "The GPU of all rows (default: the column device or gpu)")
      .type_name("NAME");
  app.add_option("--seed", arguments->seed, "Seed of splits and trees").capture_default_str();
  app.add_option("--report", arguments->report, "Folder for plots (SVG)").type_name("DIR");
  app.add_option("--note", arguments->note, "Licence and provenance, for the model card")
      .type_name("TEXT");
  app.add_flag("--grid", arguments->grid,
               "Choose rounds and depth from a small grid, by shapes kept out");
  app.add_flag("--no-validation", arguments->no_validation,
               "Fit only: no errors, ranges as wide as a factor of two");
  const Option few =
      app.add_option("--calibrate", arguments->calibrate,
                     "A few measured kernels of a new GPU: corrects the models of --model");
  few.type_name("FEW.csv");
  const Option base =
      app.add_option("--model", arguments->base, "Model file to calibrate").type_name("FILE");
  few.needs(base);
  base.needs(few);
  app.add_option(
         "--points", arguments->points,
         "With --calibrate: only so many rows of each model and GPU, chosen by k-means; the "
         "others judge, before and after")
      .type_name("N")
      .check(in_range(std::size_t{1}, std::size_t{1'000'000}))
      .needs(few);
  app.add_option("--few-shot", arguments->few_shot,
                 "Study: error on this GPU, left out, against the number of measured kernels")
      .type_name("GPU");
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
