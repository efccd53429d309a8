#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>

#include "perfmodel/output_file.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/schema.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel {
namespace {

using Json = nlohmann::ordered_json;

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

Json to_json(const OverheadStats& stats) {
  return {{"mean_us", rounded(stats.mean_us)},
          {"median_us", rounded(stats.median_us)},
          {"std_us", rounded(stats.std_us)},
          {"count", stats.count}};
}

std::string hex(std::uint64_t key) { return fmt::format("{:016x}", key); }

Json names_json(const OverheadTerm& term) {
  std::map<std::string, const OverheadStats*> sorted;
  for (const auto& [key, named] : term.by_name) sorted[named.name] = &named.stats;
  Json json = Json::object();
  for (const auto& [name, stats] : sorted) json[name] = to_json(*stats);
  return json;
}

// Contexts are many: [mean, std, count] under a hexadecimal key keeps the file small.
Json contexts_json(const OverheadTerm& term) {
  std::map<std::string, const OverheadStats*> sorted;
  for (const auto& [key, stats] : term.by_context) sorted[hex(key)] = &stats;
  Json json = Json::object();
  for (const auto& [key, stats] : sorted) {
    json[key] = {rounded(stats->mean_us), rounded(stats->std_us), stats->count};
  }
  return json;
}

Json call_json(const TemplateCall& call) {
  Json json = {{"call", call.call}};
  if (call.kind == TemplateCall::Kind::kCopy) json["copy"] = static_cast<int>(call.copy);
  if (call.kind == TemplateCall::Kind::kSet) json["set"] = true;
  if (call.kind == TemplateCall::Kind::kGraphLaunch) json["graph"] = true;
  if (call.kind == TemplateCall::Kind::kSync) json["sync"] = static_cast<int>(call.sync);
  if (call.pageable) json["pageable"] = true;
  if (call.blocking) json["blocking"] = true;
  if (call.collective) json["collective"] = true;
  if (call.after_children > 0) json["after"] = call.after_children;
  if (call.tasks != 1) json["tasks"] = call.tasks;
  if (call.stream != 0) json["stream"] = call.stream;
  if (!call.kernel.empty()) json["kernel"] = call.kernel;
  return json;
}

// A key is written only where it says something else than the next wider one that is in the file.
Json templates_json(const LaunchTemplates& templates) {
  Json lists = Json::array();
  for (const auto& list : templates.lists) {
    Json calls = Json::array();
    for (const TemplateCall& call : list) calls.push_back(call_json(call));
    lists.push_back(std::move(calls));
  }
  Json keys = Json::object();
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    std::map<std::string, LaunchTemplates::Entry> sorted;
    for (const auto& [key, entry] : templates.by_key[level]) sorted[hex(key)] = entry;
    Json entries = Json::object();
    for (const auto& [key, entry] : sorted) entries[key] = {entry.list, entry.count};
    keys[std::string(to_string(static_cast<TemplateLevel>(level)))] = std::move(entries);
  }
  return {{"lists", std::move(lists)}, {"keys", std::move(keys)}};
}

namespace dom = simdjson::dom;

struct FormatProblem {
  std::string pointer, message;
};

class TableReader {
 public:
  explicit TableReader(OverheadTable& table) : table_(table) {}

  std::optional<FormatProblem> read(dom::element root) {
    std::string_view schema;
    if (root["schema"].get(schema) != simdjson::SUCCESS || schema != schemas::kOverheads.name) {
      return FormatProblem{"/schema", "expected \"perfmodel-overheads\", found another document"};
    }
    std::int64_t version = 0;
    if (root["version"].get(version) != simdjson::SUCCESS) return missing("/version", "a version");
    if (std::string problem = version_problem(schemas::kOverheads, version); !problem.empty()) {
      return FormatProblem{"/version", std::move(problem)};
    }
    std::string_view method;
    if (root["method"].get(method) != simdjson::SUCCESS) return missing("/method", "a string");
    const auto parsed = parse_overhead_method(method);
    if (!parsed) return FormatProblem{"/method", parsed.error().message};
    table_.method = *parsed;
    provenance(root);
    if (auto problem = gaps(root)) return problem;
    const std::pair<const char*, OverheadTerm*> terms[] = {
        {"t2", &table_.t2}, {"t3", &table_.t3}, {"t5", &table_.t5}, {"tx", &table_.tx}};
    for (const auto& [key, term] : terms) {
      if (auto problem = named(root, key, term->by_name)) return problem;
    }
    if (auto problem = figures(root, "t4", table_.t4)) return problem;
    if (auto problem = figures(root, "ops", table_.ops)) return problem;
    dom::element loading;
    if (root["data_loading"].get(loading) == simdjson::SUCCESS) stats(loading, table_.data_loading);
    totals_and_contexts(root);
    splits(root);
    device(root);
    return templates(root);
  }

 private:
  static FormatProblem missing(std::string pointer, std::string_view what) {
    return {std::move(pointer), fmt::format("expected {}, found none", what)};
  }

  static bool number(dom::element value, double& out) {
    return value.get(out) == simdjson::SUCCESS;
  }

  static bool stats(dom::element value, OverheadStats& out) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) return false;
    bool has_mean = false;
    for (auto [key, field] : object) {
      double figure = 0;
      if (!field.is_number() || !number(field, figure)) continue;
      if (key == "mean_us") out.mean_us = figure, has_mean = true;
      if (key == "median_us") out.median_us = figure;
      if (key == "std_us") out.std_us = figure;
      if (key == "count") out.count = static_cast<std::uint64_t>(figure);
    }
    return has_mean;
  }

  void provenance(dom::element root) {
    std::string_view text;
    if (root["gpu"].get(text) == simdjson::SUCCESS) table_.gpu = text;
    if (root["command"].get(text) == simdjson::SUCCESS) table_.command = text;
    dom::array list;
    if (root["sources"].get(list) == simdjson::SUCCESS) {
      for (dom::element source : list) {
        if (source.get(text) == simdjson::SUCCESS) table_.sources.emplace_back(text);
      }
    }
    double figure = 0;
    if (root["profiler_cost_us"].get(figure) == simdjson::SUCCESS) table_.profiler_cost_us = figure;
    if (root["iterations"].get(figure) == simdjson::SUCCESS) {
      table_.iterations = static_cast<std::size_t>(figure);
    }
  }

  std::optional<FormatProblem> gaps(dom::element root) {
    dom::element t1;
    if (root["t1"].get(t1) != simdjson::SUCCESS || !stats(t1, table_.t1.all)) {
      return missing("/t1", "an object with mean_us");
    }
    dom::object classes;
    if (t1["by_class"].get(classes) != simdjson::SUCCESS) return {};
    for (auto [name, value] : classes) {
      OverheadTerm::Named entry{.name = std::string(name), .stats = {}};
      if (!stats(value, entry.stats))
        return missing(fmt::format("/t1/by_class/{}", name), "mean_us");
      table_.t1.by_name[hash_text(name)] = std::move(entry);
    }
    return {};
  }

  static std::optional<FormatProblem> named(
      dom::element root, const char* key,
      std::unordered_map<std::uint64_t, OverheadTerm::Named>& out) {
    dom::object object;
    if (root[key].get(object) != simdjson::SUCCESS) {
      return missing(fmt::format("/{}", key), "an object");
    }
    out.reserve(object.size());
    for (auto [name, value] : object) {
      OverheadTerm::Named entry{.name = std::string(name), .stats = {}};
      if (!stats(value, entry.stats)) return missing(fmt::format("/{}/{}", key, name), "mean_us");
      out[hash_text(name)] = std::move(entry);
    }
    return {};
  }

  static std::optional<FormatProblem> figures(dom::element root, const char* key,
                                              std::map<std::string, OverheadStats>& out) {
    dom::object object;
    if (root[key].get(object) != simdjson::SUCCESS) {
      return missing(fmt::format("/{}", key), "an object");
    }
    for (auto [name, value] : object) {
      if (!stats(value, out[std::string(name)])) {
        return missing(fmt::format("/{}/{}", key, name), "mean_us");
      }
    }
    return {};
  }

  static std::uint64_t parse_hex(std::string_view text) {
    std::uint64_t value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value, 16);
    return value;
  }

  void totals_and_contexts(dom::element root) {
    const std::pair<const char*, OverheadTerm*> terms[] = {{"t1", &table_.t1},
                                                           {"t2", &table_.t2},
                                                           {"t3", &table_.t3},
                                                           {"t5", &table_.t5},
                                                           {"tx", &table_.tx}};
    for (const auto& [key, term] : terms) {
      dom::element total;
      if (root["totals"][key].get(total) == simdjson::SUCCESS) stats(total, term->all);
      dom::object contexts;
      if (root["contexts"][key].get(contexts) != simdjson::SUCCESS) continue;
      term->by_context.reserve(contexts.size());
      for (auto [hash, value] : contexts) {
        dom::array triple;
        if (value.get(triple) != simdjson::SUCCESS) continue;
        double figures[3] = {};
        std::size_t i = 0;
        for (dom::element figure : triple) {
          if (i < 3) number(figure, figures[i++]);
        }
        term->by_context[parse_hex(hash)] = {.mean_us = figures[0],
                                             .std_us = figures[1],
                                             .median_us = figures[0],
                                             .count = static_cast<std::uint64_t>(figures[2])};
      }
    }
  }

  void splits(dom::element root) {
    dom::object entries;
    if (root["gap_splits"].get(entries) != simdjson::SUCCESS) return;
    for (auto [key, value] : entries) {
      GapSplit split;
      if (value.at(0).get(split.tail) == simdjson::SUCCESS &&
          value.at(1).get(split.head) == simdjson::SUCCESS) {
        table_.gap_splits[parse_hex(key)] = split;
      }
    }
  }

  void device(dom::element root) {
    DeviceConstants& device = table_.device;
    const std::pair<const char*, double*> constants[] = {
        {"launch_latency_us", &device.launch_latency_us},
        {"collective_latency_us", &device.collective_latency_us},
        {"copy_latency_us", &device.copy_latency_us},
        {"blocking_read_latency_us", &device.blocking_read_latency_us},
        {"blocking_write_latency_us", &device.blocking_write_latency_us},
        {"kernel_gap_us", &device.kernel_gap_us},
        {"event_gap_us", &device.event_gap_us}};
    for (const auto& [key, constant] : constants) {
      double figure = 0;
      if (root["device"][key].get(figure) == simdjson::SUCCESS) *constant = figure;
    }
  }

  std::optional<FormatProblem> templates(dom::element root) {
    dom::array lists;
    if (root["templates"]["lists"].get(lists) != simdjson::SUCCESS) return {};
    LaunchTemplates& templates = table_.templates;
    for (dom::element list : lists) {
      LaunchTemplate calls;
      dom::array items;
      if (list.get(items) != simdjson::SUCCESS)
        return missing("/templates/lists", "arrays of calls");
      for (dom::element item : items) calls.push_back(call(item));
      templates.lists.push_back(std::move(calls));
    }
    for (std::size_t level = 0; level < kTemplateLevels; ++level) {
      dom::object entries;
      if (root["templates"]["keys"][to_string(static_cast<TemplateLevel>(level))].get(entries) !=
          simdjson::SUCCESS) {
        continue;
      }
      templates.by_key[level].reserve(entries.size());
      for (auto [hash, value] : entries) {
        dom::array pair;
        if (value.get(pair) != simdjson::SUCCESS) continue;
        std::int64_t figures[2] = {};
        std::size_t i = 0;
        for (dom::element figure : pair) {
          if (i < 2 && figure.get(figures[i]) == simdjson::SUCCESS) ++i;
        }
        if (figures[0] < 0 || static_cast<std::size_t>(figures[0]) >= templates.lists.size()) {
          return FormatProblem{fmt::format("/templates/keys/{}", hash),
                               "expected the number of a list, found one out of range"};
        }
        templates.by_key[level][parse_hex(hash)] = {static_cast<std::uint32_t>(figures[0]),
                                                    static_cast<std::uint32_t>(figures[1])};
      }
    }
    return {};
  }

  static TemplateCall call(dom::element item) {
    TemplateCall call;
    dom::object object;
    if (item.get(object) != simdjson::SUCCESS) return call;
    for (auto [key, value] : object) {
      std::string_view text;
      std::int64_t number = 0;
      bool flag = false;
      if (value.get(text) == simdjson::SUCCESS) {
        if (key == "call") call.call = text;
        if (key == "kernel") call.kernel = text;
      } else if (value.get(number) == simdjson::SUCCESS) {
        if (key == "copy") {
          call.kind = TemplateCall::Kind::kCopy;
          call.copy = static_cast<CopyKind>(number);
        } else if (key == "sync") {
          call.kind = TemplateCall::Kind::kSync;
          call.sync = static_cast<SyncKind>(number);
        } else if (key == "after") {
          call.after_children = static_cast<std::uint16_t>(number);
        } else if (key == "tasks") {
          call.tasks = static_cast<std::uint16_t>(number);
        } else if (key == "stream") {
          call.stream = static_cast<std::int16_t>(number);
        }
      } else if (value.get(flag) == simdjson::SUCCESS && flag) {
        if (key == "set") call.kind = TemplateCall::Kind::kSet;
        if (key == "graph") call.kind = TemplateCall::Kind::kGraphLaunch;
        if (key == "pageable") call.pageable = true;
        if (key == "blocking") call.blocking = true;
        if (key == "collective") call.collective = true;
      }
    }
    return call;
  }

  OverheadTable& table_;
};

}  // namespace

std::string overheads_json(const OverheadTable& table) {
  Json t1 = to_json(table.t1.all);
  t1["by_class"] = names_json(table.t1);
  Json t4 = Json::object(), ops = Json::object();
  for (const auto& [call, stats] : table.t4) t4[call] = to_json(stats);
  for (const auto& [op, stats] : table.ops) ops[op] = to_json(stats);
  Json json = {{"schema", schemas::kOverheads.name},
               {"version", schemas::kOverheads.version},
               {"minor_version", schemas::kOverheads.minor_version},
               {"program", {{"version", program_version()}, {"git", git_revision()}}},
               {"method", to_string(table.method)},
               {"gpu", table.gpu},
               {"sources", table.sources},
               {"command", table.command},
               {"profiler_cost_us", table.profiler_cost_us},
               {"iterations", table.iterations},
               {"t1", std::move(t1)},
               {"t2", names_json(table.t2)},
               {"t3", names_json(table.t3)},
               {"t4", std::move(t4)},
               {"t5", names_json(table.t5)},
               {"tx", names_json(table.tx)},
               {"ops", std::move(ops)},
               {"totals",
                {{"t2", to_json(table.t2.all)},
                 {"t3", to_json(table.t3.all)},
                 {"t5", to_json(table.t5.all)},
                 {"tx", to_json(table.tx.all)}}},
               {"data_loading", to_json(table.data_loading)},
               {"device",
                {{"launch_latency_us", rounded(table.device.launch_latency_us)},
                 {"collective_latency_us", rounded(table.device.collective_latency_us)},
                 {"copy_latency_us", rounded(table.device.copy_latency_us)},
                 {"blocking_read_latency_us", rounded(table.device.blocking_read_latency_us)},
                 {"blocking_write_latency_us", rounded(table.device.blocking_write_latency_us)},
                 {"kernel_gap_us", rounded(table.device.kernel_gap_us)},
                 {"event_gap_us", rounded(table.device.event_gap_us)}}},
               {"warnings", table.warnings}};
  if (table.method == OverheadMethod::kContext) {
    json["contexts"] = {{"t1", contexts_json(table.t1)},
                        {"t2", contexts_json(table.t2)},
                        {"t3", contexts_json(table.t3)},
                        {"t5", contexts_json(table.t5)},
                        {"tx", contexts_json(table.tx)}};
  }
  if (!table.gap_splits.empty()) {
    std::map<std::string, GapSplit> sorted;
    for (const auto& [key, split] : table.gap_splits) sorted[hex(key)] = split;
    Json splits = Json::object();
    for (const auto& [key, split] : sorted)
      splits[key] = {rounded(split.tail), rounded(split.head)};
    json["gap_splits"] = std::move(splits);
  }
  if (!table.templates.lists.empty()) json["templates"] = templates_json(table.templates);
  return json.dump(1, '\t', false, Json::error_handler_t::replace) + "\n";
}

Result<void> write_overheads(const OverheadTable& table, const std::filesystem::path& file) {
  auto out = OutputFile::create(file);
  if (!out) return Unexpected{out.error()};
  out->write(overheads_json(table));
  return out->commit();
}

Result<OverheadTable> read_overheads(const std::filesystem::path& file) {
  const auto failure = [&file](ErrorCode code, std::string pointer, std::string message) {
    return Unexpected{Error{.code = code,
                            .message = std::move(message),
                            .file = file,
                            .json_pointer = std::move(pointer)}};
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    return failure(ErrorCode::kIo, "", "expected a file, found a directory");
  }
  simdjson::padded_string text;
  if (const auto code = simdjson::padded_string::load(file.string()).get(text)) {
    if (code == simdjson::MEMALLOC) throw std::bad_alloc();
    return failure(ErrorCode::kIo, "", "expected a readable file, found none");
  }
  dom::parser parser;
  dom::element root;
  if (auto error = parser.parse(text).get(root)) {
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    return failure(ErrorCode::kSyntax, "",
                   fmt::format("expected JSON, found: {}", simdjson::error_message(error)));
  }
  OverheadTable table;
  if (auto problem = TableReader(table).read(root)) {
    return failure(ErrorCode::kFormat, problem->pointer, problem->message);
  }
  return table;
}

}  // namespace perfmodel
