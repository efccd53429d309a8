// Pages, pictures and exports of `report`: whatever names a trace or a document holds, they end no
// script, open no element and break no format.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "analyze/trace_step.hpp"
#include "fuzz.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/trace_analysis.hpp"
#include "report/report_document.hpp"
#include "report/report_exports.hpp"
#include "report/report_page.hpp"
#include "report/step_picture.hpp"

using namespace perfmodel;
using report_page::Json;

namespace {

// Lists the marks that open and close elements, in order: "<title", "</title", "<!--", ...
std::vector<std::string> marks(std::string_view page) {
  std::vector<std::string> made;
  for (std::size_t at = page.find('<'); at != page.npos; at = page.find('<', at + 1)) {
    std::size_t end = at + 1;
    while (end < page.size() && end < at + 24 &&
           (std::isalpha(static_cast<unsigned char>(page[end])) || page[end] == '/' ||
            page[end] == '!' || page[end] == '-')) {
      ++end;
    }
    made.emplace_back(page.substr(at, end - at));
  }
  return made;
}

std::string_view data_of(std::string_view page) {
  constexpr std::string_view kBegin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t begin = page.find(kBegin) + kBegin.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

// The page has the elements of an empty page and the data that went in.
void check_page(const std::string& title, const Json& data) {
  static const std::vector<std::string> empty = marks(report_page::report_page("", Json::object()));
  const std::string page = report_page::report_page(title, data);
  PERFMODEL_CHECK(marks(page) == empty);
  const Json read = Json::parse(data_of(page), nullptr, /*allow_exceptions=*/false);
  PERFMODEL_CHECK(!read.is_discarded());
  const auto text = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  PERFMODEL_CHECK(text(read) == text(data));
}

// Every '<' opens an element of the pictures' own, outside of texts and attributes; both quotes
// are even in each tag.
void check_picture(std::string_view svg) {
  constexpr std::string_view kElements[] = {
      "svg",    "/svg",     "g",     "/g",     "rect",     "/rect",     "text",  "/text",
      "line",   "path",     "title", "/title", "desc",     "/desc",     "style", "/style",
      "circle", "polyline", "defs",  "/defs",  "clipPath", "/clipPath", "tspan", "/tspan"};
  PERFMODEL_CHECK(svg.starts_with("<svg") || svg.starts_with("<?xml"));
  for (std::size_t at = svg.find('<'); at != svg.npos; at = svg.find('<', at + 1)) {
    const std::size_t end = std::min(svg.find_first_of(" >/\n", at + 2), svg.size());
    const std::string_view name = svg.substr(at + 1, end - at - 1);
    PERFMODEL_CHECK(name.starts_with("?xml") ||
                    std::ranges::find(kElements, name) != std::end(kElements));
    const std::size_t close = svg.find('>', at);
    PERFMODEL_CHECK(close != svg.npos);
    PERFMODEL_CHECK(std::ranges::count(svg.substr(at, close - at), '"') % 2 == 0);
  }
}

// Rows of the same number of cells, as RFC 4180 has them.
void check_csv(std::string_view csv) {
  std::size_t cells = 1, first = 0;
  bool quoted = false;
  for (const char c : csv) {
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    if (c == ',') ++cells;
    if (c != '\n') continue;
    if (first == 0) first = cells;
    PERFMODEL_CHECK(cells == first);
    cells = 1;
  }
  PERFMODEL_CHECK(!quoted);
}

void check_exports(const std::string& title, const report_page::Run& run) {
  const std::span runs(&run, 1);
  const Json speedscope = report_page::speedscope_data(title, runs);
  PERFMODEL_CHECK(speedscope.contains("profiles") && speedscope.contains("shared"));
  check_csv(report_page::kernels_csv(runs));
  if (const auto picture = report_page::step_picture(title, run)) {
    check_picture(*picture);
  } else {
    fuzz::check_error(picture.error());
  }
  fuzz::WrittenText written;
  if (report_page::write_chrome_trace(runs, written.file())) {
    const auto read = Json::parse(written.text(), nullptr, /*allow_exceptions=*/false);
    PERFMODEL_CHECK(!read.is_discarded());
  }
}

void check_trace(const std::filesystem::path& file, const std::string& title) {
  const auto trace = read_trace(file);
  if (!trace) return;  // trace looks at those
  static const Gpu gpu = *read_gpu(fuzz::data_folder() / "gpus/a100-sxm-40gb.json");
  const auto found = analyze({&*trace, 1}, &gpu, {});
  if (!found) return fuzz::check_error(found.error());
  const auto step = findings::TraceStep::create(*trace, &gpu, {});
  if (!step) return fuzz::check_error(step.error());
  auto path = (*step)->critical_path();
  if (!path) return fuzz::check_error(path.error());
  const report_page::Run run{.name = title,
                             .facts = &(*step)->facts(),
                             .path = std::move(*path),
                             .found = &*found,
                             .gpu = &gpu,
                             .step_us = (*step)->measured_us()};
  report_page::Names names;
  Json data = {{"title", title}, {"runs", Json::array()}};
  data["runs"].push_back(report_page::run_data(run, 1000, names));
  data["names"] = names.all();
  check_page(title, data);
  check_exports(title, run);
}

// Whatever text a document holds first, as a title.
std::string first_text(const Json& document) {
  if (document.is_string()) return document.get<std::string>();
  if (!document.is_structured()) return {};
  for (const auto& item : document) {
    if (std::string text = first_text(item); !text.empty()) return text;
  }
  return {};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  if (fuzz::too_deep(text)) return 0;  // trace looks at those
  const auto& file = fuzz::file_with(text, ".json");
  const Json any = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const std::string title = any.is_discarded() ? std::string(text) : first_text(any);
  check_page(title, any.is_discarded() ? Json(std::string(text)) : any);
  if (report_page::is_document(file)) {
    const auto made = report_page::document_data(file);
    if (made) {
      check_page(title, *made);
    } else {
      fuzz::check_error(made.error());
    }
  }
  check_trace(fuzz::file_with(text, ".json"), title);
  return 0;
}
