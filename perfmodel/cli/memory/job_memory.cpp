#include "job_memory.hpp"

#include "cli/layout/layout_text.hpp"
#include "layout/layout_results.hpp"
#include "terminal/output.hpp"

namespace perfmodel::cli {
namespace {

Json memory_document(const JobReading& reading, const LayoutReport& report) {
  const LayoutPrediction& price = report.layouts.front().prediction;
  Json parts = Json::object();
  for (const auto& [key, words, bytes] : kLayoutMemoryParts) {
    parts[std::string(key)] = price.*bytes;
  }
  Json json = document(schemas::kMemory);
  json.update({{"gpu", report.gpu},
               {"gpus", report.gpus},
               {"fits", price.fits},
               {"peak_allocated_bytes", price.allocated_bytes},
               {"peak_reserved_bytes", price.reserved_bytes},
               {"device_bytes", price.device_bytes},
               {"activation_bytes", price.activation_bytes},
               {"by_purpose", std::move(parts)},
               {"layout", json_object(report.layouts.front().layout, kParallelLayoutFields)},
               {"job", job_json(reading)},
               {"warnings", report.warnings}});
  return json;
}

}  // namespace

Result<void> print_job_memory(const std::string& file, const std::string& gpu,
                              const GivenFields& given, bool json) {
  if (gpu.empty()) return fail(ErrorCode::kImpossible, "expected --gpu with a job, found none");
  LayoutInputs inputs;
  inputs.reads_files = true;
  inputs.machine.gpu = gpu;
  for (const auto& [name, text] : given)
    set_field<LayoutAsk>(inputs, *find_layout_field(name), text);
  PERFMODEL_TRY(reading, read_job(file, given, inputs));
  PERFMODEL_TRY(report, named_layout_report(inputs, warn));
  if (json) return print_document(memory_document(*reading, *report));
  return print_report(job_text(*reading) + layout_memory_text(*report, bold_allowed()));
}

}  // namespace perfmodel::cli
