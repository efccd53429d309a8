#include <fmt/format.h>

#include <memory>

#include "commands.hpp"
#include "gpu_of.hpp"
#include "open_device.hpp"
#include "perfmodel/data_files.hpp"
#include "terminal/command_parser.hpp"
#include "terminal/output.hpp"

namespace kernels_bench {
namespace {

using perfmodel::Result;
using perfmodel::cli::Json;

struct Arguments {
  std::string backend = "auto";
  int device = 0;
  bool json = false;
};

Json json_of(const DeviceInfo& info, const GpuOfDevice& found) {
  Json libraries = Json::array();
  for (const LibraryInfo& library : info.libraries) {
    Json entry = {{"name", library.name}};
    if (library.version.empty()) {
      entry["problem"] = library.problem;
    } else {
      entry["version"] = library.version;
    }
    libraries.push_back(std::move(entry));
  }
  Json json = perfmodel::cli::document(perfmodel::schemas::kBenchDevice, "kernels_bench");
  json.update({{"gpu", found.gpu.name},
               {"is_known", found.is_known},
               {"name", info.name},
               {"target", info.target},
               {"driver", info.driver},
               {"runtime", info.runtime},
               {"libraries", std::move(libraries)},
               {"memory_bytes", info.memory_bytes},
               {"free_bytes", info.free_bytes},
               {"l2_bytes", info.l2_bytes},
               {"num_sms", info.num_sms},
               {"clock_mhz", info.clock_mhz},
               {"memory_clock_mhz", info.memory_clock_mhz}});
  return json;
}

Result<void> run(const Arguments& arguments) {
  const auto data = perfmodel::find_data_folder();
  if (!data) return tl::unexpected(data.error());
  const auto device = open_device(arguments.backend, arguments.device);
  if (!device) {
    return perfmodel::fail(perfmodel::ErrorCode::kImpossible, device.error().message);
  }
  const GpuOfDevice found = gpu_of((*device)->info(), *data / "gpus");
  if (!arguments.json) return perfmodel::cli::print(found.gpu.name + "\n");
  return perfmodel::cli::print(perfmodel::cli::to_text(json_of((*device)->info(), found)) + "\n");
}

}  // namespace

Command device_command(CommandParser parent) {
  CommandParser app =
      parent.add_subcommand("device", "Prints the GPU's name in data/gpus; --json: all about it");
  auto arguments = std::make_shared<Arguments>();
  app.add_option("--backend", arguments->backend, "auto, cuda, hip, or analytic")
      .check(one_of({"auto", "cuda", "hip", "analytic"}));
  app.add_option("--device", arguments->device, "Number of the GPU").check(whole_number(0));
  app.add_flag("--json", arguments->json, "Print one JSON document");
  return {app, [arguments] { return run(*arguments); }};
}

}  // namespace kernels_bench
