#include "comparison_results.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/each_name.hpp"
#include "explain/op_title.hpp"

namespace perfmodel {
namespace {

using ComparedChange = TraceComparison::Change;
using ComparedTerm = TraceComparison::Term;

double term_change_us(const ComparedTerm& term) { return term.after_us - term.before_us; }
double step_change_us(const TraceComparison& of) { return of.step_after_us - of.step_before_us; }

// Share of a measured time by which the predicted one is off.
std::optional<double> error_of(double measured_us, double predicted_us) {
  return measured_us > 0 ? std::optional(predicted_us / measured_us - 1) : std::nullopt;
}

OrderedJson compared_shapes(const ComparedChange& at) {
  return at.shapes.empty() ? OrderedJson(nullptr) : OrderedJson(at.shapes);
}

std::string name_with_shapes(const ComparedChange& at) {
  if (!at.kernel.empty()) return at.kernel + " (" + at.op + ")";
  return at.shapes.empty() ? at.op : at.op + " " + at.shapes;
}

std::string both_counts(const ComparedChange& at) {
  const std::string measured = six_digits_text(at.count_before),
                    predicted = six_digits_text(at.count_after);
  return measured == predicted ? measured : measured + " / " + predicted;
}

auto changes_of(std::vector<ComparedChange> TraceComparison::*changes) {
  return [changes](const TraceComparison& of) {
    OrderedJson json = OrderedJson::array();
    for (const ComparedChange& at : of.*changes) {
      json.push_back(json_object(at, at.kernel.empty() ? kOpChangeFields : kKernelChangeFields));
    }
    return json;
  };
}
auto term_errors(std::vector<ComparedTerm> TraceComparison::*terms) {
  return [terms](const TraceComparison& of) { return json_list(of.*terms, kTermErrorFields); };
}

// Without the share by which the time of a family is off.
OrderedJson families_json(const std::vector<ComparedChange>& families) {
  static const auto kFields = named_fields(
      kFamilyErrorFields,
      {"family", "measured_count", "predicted_count", "measured_us", "predicted_us", "change_us"});
  return json_list(families, kFields);
}

OrderedJson op_errors_json(const TraceComparison& of) {
  OrderedJson json = json_list(of.ops, kOpErrorFields);
  for (std::size_t i = 0; i < json.size(); ++i) {
    std::vector<ComparedChange> families;
    std::ranges::copy_if(of.kernels, std::back_inserter(families),
                         [&](const ComparedChange& at) { return at.op == of.ops[i].op; });
    json[i]["families"] = families_json(families);
  }
  return json;
}

const ResultFields<TraceComparison::Step> kStepChangeFields = {
    PERFMODEL_FIELDS(TraceComparison::Step, before, after, before_us, after_us),
};

const ResultFields<TraceComparison> kComparisonFields = {
    PERFMODEL_FIELDS(TraceComparison, steps_before, steps_after, step_before_us, step_after_us),
    {"change_us", step_change_us},
    {"terms", [](const TraceComparison& of) { return json_list(of.terms, kTermChangeFields); }},
    {"steps", [](const TraceComparison& of) { return json_list(of.steps, kStepChangeFields); }},
    {"ops", changes_of(&TraceComparison::ops)},
    {"kernels", changes_of(&TraceComparison::kernels)},
    {"warnings", &TraceComparison::warnings},
};

const ResultFields<TraceComparison> kAgainstFields = {
    {"measured_steps", &TraceComparison::steps_before},
    {"measured_us", &TraceComparison::step_before_us},
    {"predicted_us", &TraceComparison::step_after_us},
    {"change_us", step_change_us},
    {"error",
     [](const TraceComparison& of) { return error_of(of.step_before_us, of.step_after_us); }},
    {"terms", term_errors(&TraceComparison::terms)},
    {"host_terms", term_errors(&TraceComparison::host_terms)},
    {"families", [](const TraceComparison& of) { return families_json(of.families); }},
    {"ops", op_errors_json},
    {"warnings", &TraceComparison::warnings},
};

}  // namespace

const ResultFields<ComparedTerm> kTermChangeFields = {
    {"term", &ComparedTerm::name, "Mean step"},
    {"before_us", &ComparedTerm::before_us, "before ms"},
    {"after_us", &ComparedTerm::after_us, "after ms"},
    {"change_us", term_change_us, "change ms", signed_milliseconds},
};

const ResultFields<ComparedTerm> kTermErrorFields = {
    {"term", &ComparedTerm::name},
    {"measured_us", &ComparedTerm::before_us, "measured ms"},
    {"predicted_us", &ComparedTerm::after_us, "predicted ms"},
    {"change_us", term_change_us, "change ms", signed_milliseconds},
};

const ResultFields<ComparedChange> kOpChangeFields = {
    {"op", &ComparedChange::op, "Ops, per step", name_with_shapes},
    {"shapes", compared_shapes},
    {"count_before", &ComparedChange::count_before, "count"},
    {"count_after", &ComparedChange::count_after, "then"},
    {"before_us", &ComparedChange::before_us, "GPU ms"},
    {"after_us", &ComparedChange::after_us, "then"},
    {"change_us", &ComparedChange::change_us, "change ms", signed_milliseconds},
    PERFMODEL_FIELDS(ComparedChange, host_before_us, host_after_us),
};
const ResultFields<ComparedChange> kKernelChangeFields = joined_fields<ComparedChange>(
    {named_fields(kOpChangeFields, {"op", "shapes"}),
     {{"kernel", &ComparedChange::kernel}},
     named_fields(kOpChangeFields,
                  {"count_before", "count_after", "before_us", "after_us", "change_us"})});

const ResultFields<ComparedChange> kFamilyErrorFields = {
    {"family", &ComparedChange::kernel, "Kernels by family"},
    {"measured_count", &ComparedChange::count_before, "count", both_counts},
    {"predicted_count", &ComparedChange::count_after},
    {"measured_us", &ComparedChange::before_us, "measured ms"},
    {"predicted_us", &ComparedChange::after_us, "predicted ms"},
    {"change_us", &ComparedChange::change_us, "change ms", signed_milliseconds},
    {"error", [](const ComparedChange& at) { return error_of(at.before_us, at.after_us); }, "error",
     [](double error) { return signed_percent(error); }},
};
const ResultFields<ComparedChange> kOpErrorFields = {
    {"op", &ComparedChange::op, "Ops, largest change first", op_title},
    {"measured_count", &ComparedChange::count_before, "count", both_counts},
    {"predicted_count", &ComparedChange::count_after},
    {"measured_us", &ComparedChange::before_us, "GPU ms"},
    {"predicted_us", &ComparedChange::after_us, "predicted"},
    {"change_us", &ComparedChange::change_us, "change", signed_milliseconds},
    {"measured_host_us", &ComparedChange::host_before_us, "host ms"},
    {"predicted_host_us", &ComparedChange::host_after_us, "predicted"},
    {"host_change_us", &ComparedChange::host_change_us, "change", signed_milliseconds},
};

OrderedJson comparison_json(const TraceComparison& comparison, const std::string& before,
                            const std::string& after) {
  OrderedJson json = {{"before", before}, {"after", after}};
  json.update(json_object(comparison, kComparisonFields));
  return json;
}

OrderedJson against_json(const TraceComparison& comparison, const std::string& trace) {
  OrderedJson json = {{"trace", trace}};
  json.update(json_object(comparison, kAgainstFields));
  return json;
}

std::string signed_milliseconds(double us) { return fmt::format("{:+.3f}", us / 1e3); }

}  // namespace perfmodel
