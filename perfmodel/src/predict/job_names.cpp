#include "job_names.hpp"

#include <fmt/format.h>

namespace perfmodel {
namespace {

constexpr auto kNobody = ~std::uint64_t{0};

}  // namespace

const ProgramItem& JobNames::item(TaskId task, std::size_t rank) const {
  return programs[rank].program.item(tasks.graph.op(task));
}

std::string_view JobNames::op(TaskId task, std::size_t rank) const {
  return name_of(item(task, rank), programs[rank].graph());
}

std::string JobNames::with_place(TaskId task) const {
  const std::size_t r = tasks.rank_of(task);
  if (r == programs.size()) return "the meeting of a collective";
  const ProgramTasks& rank = *tasks.ranks[r];
  return fmt::format(
      "\"{}\" on {}{}", op(task, r),
      rank.on_device(task) ? fmt::format("stream {}", rank.stream_of(task)) : "the host",
      programs.size() == 1 ? "" : fmt::format(" of rank {}", r));
}

std::string JobNames::with_rank(TaskId task) const {
  const std::size_t r = tasks.rank_of(task);
  if (r == programs.size()) return {};
  return fmt::format("rank {}: {}", r, op(task, r));
}

std::uint64_t JobNames::key(TaskId task) const {
  const std::size_t r = tasks.rank_of(task);
  if (r == programs.size()) return kNobody;
  const ProgramItem& own = item(task, r);
  const Node& node = programs[r].graph().node(own.subject);
  return hash_mix(r + 1, own.title.empty() ? node.name : hash_text(own.title));
}

std::function<std::uint64_t(TaskGraph::TaskId)> JobNames::op_key() const {
  if (programs.size() == 1) return {};
  return [this](TaskId task) {
    const std::size_t r = tasks.rank_of(task);
    return r == programs.size() ? kNobody : hash_text(op(task, r));
  };
}

}  // namespace perfmodel
