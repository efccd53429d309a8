#include "suite_results.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/each_name.hpp"
#include "json/csv_file.hpp"

namespace perfmodel::suite {
namespace {

OrderedJson memory_json(const SuiteRow& row) {
  OrderedJson purposes = OrderedJson::object();
  for (const MemoryPurpose& purpose : row.memory) {
    purposes[std::string(purpose.name)] = std::llround(purpose.bytes);
  }
  return {{"needed_bytes", std::llround(row.needed_bytes)}, {"by_purpose", std::move(purposes)}};
}

const ResultFields<SuiteRow> kSuiteRowFields = {
    PERFMODEL_FIELDS(SuiteRow, batch, step_us),
    {"step_low_us", &SuiteRow::low_us},
    {"step_high_us", &SuiteRow::high_us},
    PERFMODEL_FIELDS(SuiteRow, throughput, throughput_low, throughput_high, gpu_active_us, cpu_us,
                     gpu_utilization, fp32_utilization, matrix_utilization, cpu_utilization),
    {"memory", memory_json},
    PERFMODEL_FIELDS(SuiteRow, modelled_time_fraction, kernels_out_of_range, warnings),
};

// Shares have four decimals in tables.
ResultFields<SuiteRow> csv_columns() {
  auto columns = named_fields(
      joined_fields<SuiteRow>({kSuiteRowFields, {{"needed_bytes", &SuiteRow::needed_bytes}}}),
      {"throughput", "throughput_low", "throughput_high", "step_us", "step_low_us", "step_high_us",
       "gpu_utilization", "fp32_utilization", "matrix_utilization", "cpu_utilization",
       "needed_bytes"});
  for (ResultField<SuiteRow>& column : columns) {
    if (column.name.ends_with("_utilization")) column.digits = Digits::kFourInTables;
  }
  return columns;
}

std::string batches_text(const SuiteModel& model) {
  return fmt::format("{} {}", fmt::join(model.batches, " "), model.batch_unit);
}

OrderedJson model_json(const SuiteModelReport& report) {
  OrderedJson json = json_object(
      report.model, named_fields(kSuiteModelFields, {"name", "title", "domain", "unit",
                                                     "batch_unit", "units_per_sample"}));
  json.update({{"parameters", report.parameters},
               {"published_parameters", json_value(report.model.published_parameters)},
               {"best_batch", report.best().batch},
               {"rows", json_list(report.rows, kSuiteRowFields)}});
  return json;
}

}  // namespace

const ResultFields<SuiteModel> kSuiteModelFields = {
    {"name", &SuiteModel::name, "model"},
    {"title", &SuiteModel::title, "<title"},
    {"domain", &SuiteModel::domain, "<domain"},
    {"unit", &SuiteModel::unit, "<unit"},
    {"batch_unit", &SuiteModel::batch_unit},
    {"units_per_sample", &SuiteModel::units_per_sample, Digits::kAll},
    {"batches", &SuiteModel::batches, "<batches", batches_text},
    {"notes", &SuiteModel::notes},
};

OrderedJson suite_json(const SuiteOutput& output) {
  const SuiteReport& report = output.report;
  OrderedJson json = {{"suite", report.suite.name},
                      {"title", report.suite.title},
                      {"gpu", report.gpu.name},
                      {"fp32_peak_tflop_per_s", six_digits(report.fp32_peak_flop_per_s / 1e12)},
                      PERFMODEL_VALUES(output, kernel_models, host, host_scale),
                      {"cpu_cores", 1},
                      {"models", OrderedJson::array()},
                      {"unmodelled_ops", report.unmodelled_ops},
                      {"sources", report.suite.sources},
                      {"warnings", report.warnings}};
  for (const SuiteModelReport& model : report.models) json["models"].push_back(model_json(model));
  return json;
}

OrderedJson suites_json(const std::vector<Suite>& suites) {
  const auto fields = named_fields(
      kSuiteModelFields, {"name", "title", "domain", "unit", "batch_unit", "batches", "notes"});
  OrderedJson json;
  json["suites"] = OrderedJson::array();
  for (const Suite& suite : suites) {
    json["suites"].push_back({PERFMODEL_VALUES(suite, name, title, gpu, sources),
                              {"models", json_list(suite.models, fields)}});
  }
  return json;
}

std::string suite_csv(const SuiteReport& report) {
  const auto columns = csv_columns();
  std::string csv = "suite,gpu,model,batch,unit," + csv_header(columns);
  for (const MemoryPurpose& purpose : report.models.front().rows.front().memory) {
    csv += fmt::format(",{}_bytes", purpose.name);
  }
  csv += '\n';
  for (const SuiteModelReport& model : report.models) {
    for (const SuiteRow& row : model.rows) {
      csv += fmt::format("{},{},{},{},{},{}", report.suite.name, report.gpu.name, model.model.name,
                         row.batch, csv_cell(model.model.unit), csv_cells(row, columns));
      for (const MemoryPurpose& purpose : row.memory) csv += fmt::format(",{:.0f}", purpose.bytes);
      csv += '\n';
    }
  }
  return csv;
}

}  // namespace perfmodel::suite
