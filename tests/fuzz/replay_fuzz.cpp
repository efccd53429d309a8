// Replays of traces, and overheads learned from them.
#include <cmath>

#include "fuzz.hpp"
#include "perfmodel/graph/trace.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/replay.hpp"

using namespace perfmodel;

namespace {

void check_overheads(const Trace& trace, OverheadMethod method) {
  const OverheadSource source{.trace = &trace};
  const auto table = extract_overheads({&source, 1}, {.method = method});
  if (!table) return fuzz::check_error(table.error());
  fuzz::check_lines(table->warnings);
  const auto again = read_overheads(fuzz::file_with(overheads_json(*table)));
  PERFMODEL_CHECK(again.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto trace = read_trace(fuzz::file_with(fuzz::text_of(data, size)));
  if (!trace) return 0;  // trace looks at those
  const auto made = replay({&*trace, 1}, {.keep_timeline = true, .keep_chakra = true});
  if (made) {
    fuzz::check_lines(made->warnings);
    for (const auto& iteration : made->ranks.at(0).iterations) {
      PERFMODEL_CHECK(std::isfinite(iteration.replayed_us) && iteration.replayed_us >= 0);
    }
  } else {
    fuzz::check_error(made.error());
  }
  check_overheads(*trace, OverheadMethod::kContext);
  check_overheads(*trace, OverheadMethod::kRaw);
  check_overheads(*trace, OverheadMethod::kLin);
  return 0;
}
