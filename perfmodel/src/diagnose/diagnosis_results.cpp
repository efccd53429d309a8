#include "diagnosis_results.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "measures.hpp"

namespace perfmodel {
namespace {

std::string_view unit_of(RunMeasure what) {
  const std::string_view unit = kind_of(what).unit;
  if (unit == "ms") return "us";
  if (unit == "GB") return "bytes";
  return unit == "%" ? "share" : unit;
}

template <std::int64_t RunSetting::*kPart>
OrderedJson part_or_null(const RunSetting& at) {
  return at.*kPart > 0 ? OrderedJson(at.*kPart) : OrderedJson(nullptr);
}

template <std::int64_t RunSetting::*kPart>
OrderedJson setting_of(const CheckedFigure& of) {
  return part_or_null<kPart>(of.figure.at);
}

const ResultFields<CheckedFigure> kFigureFields = {
    {"measure", [](const CheckedFigure& of) { return std::string(to_string(of.figure.what)); }},
    {"unit", [](const CheckedFigure& of) { return std::string(unit_of(of.figure.what)); }},
    {"batch", setting_of<&RunSetting::batch>},
    {"world", setting_of<&RunSetting::world>},
    {"tp", setting_of<&RunSetting::tp>},
    {"pp", setting_of<&RunSetting::pp>},
    {"micro_batch", setting_of<&RunSetting::micro_batch>},
    {"measured", [](const CheckedFigure& of) { return of.figure.value; }},
    PERFMODEL_FIELDS(CheckedFigure, predicted, low, high),
    {"inside", &CheckedFigure::is_inside}};

OrderedJson next_json(const std::optional<NextMeasurement>& next) {
  if (!next) return nullptr;
  return {{"measure", to_string(next->what)},
          {"unit", unit_of(next->what)},
          {"batch", part_or_null<&RunSetting::batch>(next->at)},
          {"world", part_or_null<&RunSetting::world>(next->at)},
          {"how", next->how},
          {"first", six_digits(next->first)},
          {"second", six_digits(next->second)},
          {"deviations", six_digits(next->deviations)}};
}

const CauseFinding* second_cause(const RunDiagnosis& diagnosis, const CauseFinding& first) {
  for (const CauseFinding& one : diagnosis.causes) {
    if (&one != &first && one.name != "prediction") return &one;
  }
  return nullptr;
}

}  // namespace

const ResultFields<CauseFinding> kCauseFields = {
    {"cause", [](const CauseFinding& of) { return std::string(of.name); }, "<cause"},
    {"probability", &CauseFinding::probability, "likely",
     [](double share) { return fmt::format("{:.0f} %", 100 * share); }},
    {"value",
     [](const CauseFinding& of) {
       return of.has_value ? six_digits(of.value) : OrderedJson(nullptr);
     }},
    {"low",
     [](const CauseFinding& of) {
       return of.has_value ? six_digits(of.low) : OrderedJson(nullptr);
     }},
    {"high",
     [](const CauseFinding& of) {
       return of.has_value ? six_digits(of.high) : OrderedJson(nullptr);
     }},
    {"plausible", &CauseFinding::is_plausible},
    {"explained",
     [](const CauseFinding& of) { return with_digits(OrderedJson(of.explained), Digits::kSix); }},
    {"sentence",
     [](const CauseFinding& of) {
       return of.sentence + (of.is_plausible ? "" : " (not plausible)");
     },
     "<if it is, then"}};

std::string figure_words(const CheckedFigure& of) {
  const RunMeasure what = of.figure.what;
  const std::string_view place = of.is_inside()              ? "inside"
                                 : of.figure.value > of.high ? "above"
                                                             : "below";
  return fmt::format("{}: {}, predicted {} ({} to {}): {}", measure_words(what, of.figure.at),
                     measured_words(what, of.figure.value), measured_words(what, of.predicted),
                     measured_words(what, of.low), measured_words(what, of.high), place);
}

std::string next_words(const RunDiagnosis& diagnosis) {
  const auto named = std::ranges::find_if(
      diagnosis.causes, [](const CauseFinding& one) { return one.name != "prediction"; });
  if (named == diagnosis.causes.end()) return "";
  const CauseFinding* const second = second_cause(diagnosis, *named);
  constexpr double kSeldom = 0.01;
  if (!second || second->probability < kSeldom) return "";
  if (!diagnosis.next) {
    return fmt::format("no single measurement tells {} from {}", named->name, second->name);
  }
  const NextMeasurement& next = *diagnosis.next;
  return fmt::format("{}: {} {} if it is {}, {} if it is {}", next.how,
                     measure_words(next.what, next.at), measured_words(next.what, next.first),
                     named->name, measured_words(next.what, next.second), second->name);
}

std::string verdict_words(const RunDiagnosis& diagnosis) {
  if (diagnosis.is_normal) return "normal: all figures are within their ranges";
  if (diagnosis.alike < 2) return fmt::format("not normal: {}", diagnosis.causes.front().sentence);
  std::string names;
  for (std::size_t i = 0; i < diagnosis.alike; ++i) {
    names += (i == 0 ? "" : ", ") + std::string(diagnosis.causes[i].name);
  }
  return fmt::format("not normal; these figures do not tell apart: {}", names);
}

OrderedJson diagnosis_json(const RunDiagnosis& diagnosis) {
  return {{"normal", diagnosis.is_normal},
          {"verdict", verdict_words(diagnosis)},
          {"figures", json_list(diagnosis.figures, kFigureFields)},
          {"causes", json_list(diagnosis.causes, kCauseFields)},
          {"alike", diagnosis.alike},
          {"next", next_json(diagnosis.next)},
          {"left_out", diagnosis.left_out},
          {"warnings", diagnosis.warnings}};
}

}  // namespace perfmodel
