#include "kernels/collective_answer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "base/byte_amount.hpp"
#include "base/impossible.hpp"
#include "files/lower_case.hpp"
#include "perfmodel/data_files.hpp"
#include "perfmodel/predictors/detail/collective_model.hpp"
#include "tables/names.hpp"

namespace perfmodel {
namespace {

constexpr std::size_t kMostSizes = 10'000;

bool is_between_two(CollectiveKind kind) {
  return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv;
}

double gigabytes_per_s(BytesPerSecond rate) { return rate.value * 1e-9; }

Unexpected bad_size(std::string_view size) {
  return fail(ErrorCode::kFormat,
              fmt::format("expected a size above 0 such as 4096, 64KiB, 1MiB or 2GiB, or two with "
                          "\":\" between them, the smaller first, found \"{}\"",
                          size));
}

/// Sizes in bytes; `unit`: what a number without a unit counts.
Result<void> append_sizes(std::string_view text, double unit, std::vector<double>& sizes) {
  const auto bytes_of = [unit](std::string_view word) {
    const auto amount = byte_amount(word);
    if (!amount) return 0.0;
    return static_cast<double>(*amount) * (word.ends_with("iB") ? 1 : unit);
  };
  const std::size_t colon = text.find(':');
  const double first = bytes_of(text.substr(0, colon));
  const double last = colon == text.npos ? first : bytes_of(text.substr(colon + 1));
  if (first <= 0 || last < first) return bad_size(text);
  for (double bytes = first; bytes <= last; bytes *= 2) sizes.push_back(bytes);
  if (sizes.size() <= kMostSizes) return {};
  return impossible(fmt::format("at most {} sizes", kMostSizes), std::to_string(sizes.size()));
}

Result<double> element_bytes(const std::string& type) {
  if (type.empty()) return 1.0;
  const auto* known = table::find_type(type);
  if (known) return static_cast<double>(size_in_bytes(known->storage));
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected {}, found \"{}\"", table::a_known_type(type), type));
}

// "all-reduce", "AllReduce" and "all_reduce" are the same.
std::string plain_kind(std::string_view name) {
  std::string letters = lower_case(name);
  std::erase_if(letters, [](char c) { return c == '-' || c == '_'; });
  return letters;
}

Result<CollectiveKind> kind_named(const std::string& name) {
  std::vector<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(CollectiveKind::kRecv); ++i) {
    const auto kind = static_cast<CollectiveKind>(i);
    names.push_back(to_string(kind));
    if (plain_kind(names.back()) == plain_kind(name)) return kind;
  }
  return fail(ErrorCode::kUnknownName, fmt::format("expected a collective ({}), found \"{}\"",
                                                   fmt::join(names, ", "), name));
}

}  // namespace

Result<CollectiveQuestion> collective_question(const std::string& op, Bytes bytes,
                                               std::int64_t world, std::int64_t nodes) {
  constexpr std::int64_t kMost = 1 << 24;
  PERFMODEL_TRY(kind, kind_named(op));
  if (world < 2 || world > kMost) {
    return impossible("a world of 2 to 16,777,216 GPUs", std::to_string(world));
  }
  if (nodes < 0 || nodes > kMost) return impossible("nodes of at least 1", std::to_string(nodes));
  return CollectiveQuestion{.kind = *kind,
                            .bytes = bytes,
                            .world = static_cast<int>(world),
                            .nodes = static_cast<int>(nodes)};
}

BytesPerSecond CollectiveAnswer::algorithm_bandwidth() const {
  return {price.time.count() > 0 ? question.bytes.value / price.time.count() * 1e6 : 0};
}

Result<CollectiveAnswer> answer_collective(const Topology& topology,
                                           const CollectiveQuestion& question) {
  if (question.world < 2) {
    return impossible("a world of 2 GPUs or more", std::to_string(question.world));
  }
  if (is_between_two(question.kind) && question.world != 2) {
    return impossible("a world of 2 GPUs for send and recv", std::to_string(question.world));
  }
  CollectiveAnswer answer{.question = question, .price = {}};
  int& nodes = answer.question.nodes;
  if (nodes == 0) nodes = (question.world - 1) / topology.gpus_per_node + 1;
  PERFMODEL_TRY(time, collective_time(topology, {.kind = question.kind,
                                                 .bytes = question.bytes,
                                                 .ranks = question.world,
                                                 .nodes = nodes}));
  answer.price = *time;
  const Price range = collective_price(*time, topology, question.bytes);
  answer.low = range.low;
  answer.high = range.high;
  return answer;
}

Result<Topology> topology_named(const std::string& name, const Gpu& gpu,
                                const NetworkFacts& network, std::vector<std::string>& warnings) {
  PERFMODEL_TRY(topology, name.empty() ? Result<Topology>(topology_for(gpu))
                                       : TopologyCatalog::builtin().find(name));
  for (std::string& sentence : stand_ins(*topology)) warnings.push_back(std::move(sentence));
  if (name.empty() && !default_topology(gpu)) {
    warnings.push_back("no topology of " + gpu.name +
                       " is known: its links are taken from the data sheet, and no network");
  } else if (std::ranges::find(topology->gpus, gpu.name) == topology->gpus.end()) {
    warnings.push_back(fmt::format("topology {} is one of {}, not of {}", topology->name,
                                   fmt::join(topology->gpus, ", "), gpu.name));
  }
  return network.says_nics() ? with_network(*std::move(topology), network) : topology;
}

Result<CollectiveTable> answer_collectives(const CollectiveStudy& study) {
  PERFMODEL_TRY(question, collective_question(study.op, {}, study.world, study.nodes));
  PERFMODEL_TRY(unit, element_bytes(study.type));
  std::vector<double> sizes;
  for (const std::string& text : study.sizes) PERFMODEL_TRY_TO(append_sizes(text, *unit, sizes));
  PERFMODEL_TRY(data, find_data_folder());
  PERFMODEL_TRY(gpu, find_gpu(study.gpu, *data / "gpus"));
  CollectiveTable table{.study = study, .gpu = gpu->name, .topology = {}};
  table.warnings = stand_ins(*gpu);
  PERFMODEL_TRY(topology, topology_named(study.topology, *gpu, study.network, table.warnings));
  table.topology = std::move(*topology);
  for (const double bytes : sizes) {
    question->bytes = {bytes};
    PERFMODEL_TRY(answer, answer_collective(table.topology, *question));
    table.rows.push_back(*answer);
  }
  if (!std::ranges::all_of(table.rows, [](const auto& row) { return row.price.in_range; })) {
    table.warnings.emplace_back(
        "some sizes or groups are out of what the topology's figures were fitted to");
  }
  return table;
}

namespace {

using Row = CollectiveAnswer;

auto of_collective_price(auto member) {
  return [member](const Row& row) { return row.price.*member; };
}
auto us_of(auto member) {
  return [member](const Row& row) { return (row.price.*member).count(); };
}

std::string us_text(double us) { return fmt::format("{:.2f}", us); }
std::string gb_text(double gb) { return fmt::format("{:.2f}", gb); }
std::string yes_or_no(bool yes) { return yes ? "yes" : "no"; }

}  // namespace

const ResultFields<Row> kCollectiveSizeFields = {
    {"bytes", [](const Row& row) { return row.question.bytes.value; }, Digits::kWhole, "size",
     byte_amount_text},
    {"time_us", us_of(&CollectiveTime::time), "time us", us_text},
    {"low_us", [](const Row& row) { return row.low.count(); }, "low us", us_text},
    {"high_us", [](const Row& row) { return row.high.count(); }, "high us", us_text},
    {"bus_gb_per_s", [](const Row& row) { return gigabytes_per_s(row.price.bus_bandwidth); },
     "bus GB/s", gb_text},
    {"algorithm_gb_per_s",
     [](const Row& row) { return gigabytes_per_s(row.algorithm_bandwidth()); }, "alg. GB/s",
     gb_text},
    {"latency_us", us_of(&CollectiveTime::latency), "latency us", us_text},
    {"wire_us", us_of(&CollectiveTime::wire), "wire us", us_text},
    {"algorithm", of_collective_price(&CollectiveTime::algorithm), "<algorithm"},
    {"protocol", of_collective_price(&CollectiveTime::protocol), "<protocol"},
    {"bound", of_collective_price(&CollectiveTime::bound), "<bound"},
    {"wire_bytes", [](const Row& row) { return row.price.wire_bytes.value; }},
    {"in_range", of_collective_price(&CollectiveTime::in_range), "<measured", yes_or_no},
};

OrderedJson collective_json(const CollectiveTable& table) {
  const Topology& topology = table.topology;
  OrderedJson json = {{"op", table.study.op},
                      {"gpu", table.gpu},
                      {"topology", topology.name},
                      {"world", table.study.world},
                      {"nodes", table.rows.front().question.nodes}};
  if (!table.study.type.empty()) json["type"] = table.study.type;
  if (table.study.network.says_nics()) {
    json["nics"] = topology.nic->count;
    json["nic_gb_per_s"] = gigabytes_per_s(topology.nic->bandwidth);
    json["nic_latency_us"] = topology.nic->latency.count();
  }
  json["sizes"] = json_list(table.rows, kCollectiveSizeFields);
  json["warnings"] = table.warnings;
  return json;
}

}  // namespace perfmodel
