#include "searched_stages.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "step_time.hpp"

namespace perfmodel {
namespace {

/// As many layers in the first and the last chunk; none where the others would have none.
std::optional<std::vector<ChunkLayers>> spread_with(const std::vector<ChunkLayers>& chunks,
                                                    std::int64_t layers, std::int64_t first,
                                                    std::int64_t last) {
  std::vector<ChunkLayers> spread(chunks.size());
  const auto others = static_cast<std::int64_t>(chunks.size()) - 2;
  const std::int64_t left = layers - first - last;
  if (first < 0 || last < 0 || left < others || (others == 0 && left != 0)) return std::nullopt;
  spread.front().embeds = true;
  spread.back().heads = spread.back().loses = true;
  spread.front().layers = first;
  spread.back().layers = last;
  for (std::int64_t i = 0; i < others; ++i) {
    spread[static_cast<std::size_t>(i) + 1].layers = left / others + (i < left % others ? 1 : 0);
  }
  return spread;
}

}  // namespace

Result<std::vector<ChunkLayers>> search_stages(const StepQuestion& question,
                                               std::vector<ChunkLayers> chunks) {
  constexpr std::int64_t kReach = 4;  // layers that embeddings or an output layer may be worth
  const std::int64_t layers = question.job->model.layers;
  const std::int64_t each = layers / static_cast<std::int64_t>(chunks.size());
  PERFMODEL_TRY(best, step_time(question, chunks));
  const auto judge = [&](std::optional<std::vector<ChunkLayers>> spread) -> Result<void> {
    if (!spread) return {};
    PERFMODEL_TRY(time, step_time(question, *spread));
    if (time->step_us >= best->step_us) return {};
    best = std::move(time);
    chunks = std::move(*spread);
    return {};
  };
  for (std::int64_t first = each + 1; first >= std::max<std::int64_t>(0, each - kReach); --first) {
    for (std::int64_t last = each + 1; last >= std::max<std::int64_t>(0, each - kReach); --last) {
      // Two chunks have no others: the last one takes what is left.
      const std::int64_t at_last = chunks.size() == 2 ? layers - first : last;
      PERFMODEL_TRY_TO(judge(spread_with(chunks, layers, first, at_last)));
      if (chunks.size() == 2) break;
    }
  }
  return chunks;
}

}  // namespace perfmodel
