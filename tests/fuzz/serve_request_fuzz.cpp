// Requests of serve, a line each, through the whole service: each has one answer, one line of JSON.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "fuzz.hpp"
#include "serve/service.hpp"

using namespace perfmodel;

namespace {

serve::Service& service() {
  static const auto made = [] {
    auto predictor = Predictor::load({.data = fuzz::data_folder(),
                                      .gpus = {"a100-sxm-40gb", "h100-sxm-80gb"},
                                      .models = "heuristic"});
    return std::make_unique<serve::Service>(
        std::move(*predictor),
        serve::ServiceOptions{.max_graphs = 4, .max_graph_bytes = std::size_t{64} << 20});
  }();
  return *made;
}

// Graphs of a thousand layers would be built for seconds; the bounds of the builders are not what
// is looked for.
bool builds(std::string_view line) { return line.find("build") != line.npos; }

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = fuzz::text_of(data, size);
  for (int lines = 0; !rest.empty() && lines < 1000; ++lines) {
    const std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    if (builds(line)) continue;
    const std::string answer = service().answer(line, {});
    PERFMODEL_CHECK(std::ranges::none_of(answer, [](char c) { return c >= 0 && c < 0x20; }));
    const auto json = nlohmann::json::parse(answer, nullptr, /*allow_exceptions=*/false);
    PERFMODEL_CHECK(json.is_object() && json.contains("id"));
    PERFMODEL_CHECK(json.contains("result") != json.contains("error"));
    if (json.contains("error")) PERFMODEL_CHECK(json["error"]["code"] != "internal");
  }
  return 0;
}
