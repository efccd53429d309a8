#include <fmt/format.h>

#include <cmath>

#include "json/csv_file.hpp"
#include "suite_report.hpp"

namespace perfmodel::cli {
namespace {

using suite::SuiteModelReport;
using suite::SuiteRow;

Json row_json(const SuiteRow& row) {
  Json purposes = Json::object();
  for (const suite::MemoryPurpose& purpose : row.memory) {
    purposes[std::string(purpose.name)] = std::llround(purpose.bytes);
  }
  return {{"batch", row.batch},
          {"step_us", rounded(row.step_us)},
          {"step_low_us", rounded(row.low_us)},
          {"step_high_us", rounded(row.high_us)},
          {"throughput", six_digits(row.throughput)},
          {"throughput_low", six_digits(row.throughput_low)},
          {"throughput_high", six_digits(row.throughput_high)},
          {"gpu_active_us", rounded(row.gpu_active_us)},
          {"cpu_us", rounded(row.cpu_us)},
          {"gpu_utilization", six_digits(row.gpu_utilization)},
          {"fp32_utilization", six_digits(row.fp32_utilization)},
          {"matrix_utilization", six_digits(row.matrix_utilization)},
          {"cpu_utilization", six_digits(row.cpu_utilization)},
          {"memory",
           {{"needed_bytes", std::llround(row.needed_bytes)}, {"by_purpose", std::move(purposes)}}},
          {"modelled_time_fraction", six_digits(row.modelled_time_fraction)},
          {"kernels_out_of_range", row.kernels_out_of_range},
          {"warnings", row.warnings}};
}

Json model_json(const SuiteModelReport& report) {
  const suite::SuiteModel& model = report.model;
  Json json = {{"name", model.name},
               {"title", model.title},
               {"domain", model.domain},
               {"unit", model.unit},
               {"batch_unit", model.batch_unit},
               {"units_per_sample", model.units_per_sample},
               {"parameters", report.parameters},
               {"published_parameters",
                model.published_parameters ? Json(*model.published_parameters) : Json(nullptr)},
               {"best_batch", report.best().batch},
               {"rows", Json::array()}};
  for (const SuiteRow& row : report.rows) json["rows"].push_back(row_json(row));
  return json;
}

}  // namespace

Json suite_json(const SuiteOutput& output) {
  const suite::SuiteReport& report = output.report;
  Json json = document(schemas::kSuiteReport);
  json.update({{"suite", report.suite.name},
               {"title", report.suite.title},
               {"gpu", report.gpu.name},
               {"fp32_peak_tflop_per_s", six_digits(report.fp32_peak_flop_per_s / 1e12)},
               {"kernel_models", output.kernel_models},
               {"host", output.host},
               {"host_scale", output.host_scale},
               {"cpu_cores", 1},
               {"models", Json::array()},
               {"unmodelled_ops", report.unmodelled_ops},
               {"sources", report.suite.sources},
               {"warnings", report.warnings}});
  for (const SuiteModelReport& model : report.models) json["models"].push_back(model_json(model));
  return json;
}

std::string suite_csv(const SuiteOutput& output) {
  std::string csv =
      "suite,gpu,model,batch,unit,throughput,throughput_low,throughput_high,step_us,step_low_us,"
      "step_high_us,gpu_utilization,fp32_utilization,matrix_utilization,cpu_utilization,needed_"
      "bytes";
  const auto& models = output.report.models;
  for (const suite::MemoryPurpose& purpose : models.front().rows.front().memory) {
    csv += fmt::format(",{}_bytes", purpose.name);
  }
  csv += '\n';
  for (const SuiteModelReport& report : models) {
    for (const SuiteRow& row : report.rows) {
      csv += fmt::format(
          "{},{},{},{},{},{:.6g},{:.6g},{:.6g},{:.3f},{:.3f},{:.3f},{:.4f},{:.4f},{:.4f},{:.4f},{:."
          "0f}",
          output.report.suite.name, output.report.gpu.name, report.model.name, row.batch,
          csv_cell(report.model.unit), row.throughput, row.throughput_low, row.throughput_high,
          row.step_us, row.low_us, row.high_us, row.gpu_utilization, row.fp32_utilization,
          row.matrix_utilization, row.cpu_utilization, row.needed_bytes);
      for (const suite::MemoryPurpose& purpose : row.memory) {
        csv += fmt::format(",{:.0f}", purpose.bytes);
      }
      csv += '\n';
    }
  }
  return csv;
}

Json suites_json(const std::vector<suite::Suite>& suites) {
  Json json = document(schemas::kSuites);
  json["suites"] = Json::array();
  for (const suite::Suite& suite : suites) {
    Json models = Json::array();
    for (const suite::SuiteModel& model : suite.models) {
      models.push_back({{"name", model.name},
                        {"title", model.title},
                        {"domain", model.domain},
                        {"unit", model.unit},
                        {"batch_unit", model.batch_unit},
                        {"batches", model.batches},
                        {"notes", model.notes}});
    }
    json["suites"].push_back({{"name", suite.name},
                              {"title", suite.title},
                              {"gpu", suite.gpu},
                              {"sources", suite.sources},
                              {"models", std::move(models)}});
  }
  return json;
}

}  // namespace perfmodel::cli
