#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/each_name.hpp"
#include "base/schema.hpp"
#include "files/json_file.hpp"
#include "files/json_position.hpp"
#include "json/file_kind.hpp"
#include "json/recording_json.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "perfmodel/overheads.hpp"
#include "perfmodel/version.hpp"

namespace perfmodel {
namespace {

using OrderedJson = nlohmann::ordered_json;

double four_decimals(double value) { return std::round(value * 1e4) / 1e4; }

OrderedJson to_json(const OverheadStats& stats) {
  OrderedJson json = {{"mean_us", four_decimals(stats.mean_us)},
                      {"median_us", four_decimals(stats.median_us)},
                      {"std_us", four_decimals(stats.std_us)},
                      {"count", stats.count}};
  if (stats.tensors > 0) json["tensors"] = four_decimals(stats.tensors);
  return json;
}

std::string hex(std::uint64_t key) { return fmt::format("{:016x}", key); }

OrderedJson names_json(const OverheadTerm& term) {
  std::map<std::string, const OverheadStats*> sorted;
  for (const auto& [key, named] : term.by_name) sorted[named.name] = &named.stats;
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, stats] : sorted) json[name] = to_json(*stats);
  return json;
}

OrderedJson figures_json(const std::map<std::string, OverheadStats>& figures) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [name, stats] : figures) json[name] = to_json(stats);
  return json;
}

OrderedJson term_json(const OverheadTable& table, const HostTerm& host) {
  if (!host.figures) return figures_json(table.t4);
  const OverheadTerm& term = table.*host.figures;
  if (!host.is_gap) return names_json(term);
  OrderedJson json = to_json(term.all);
  json["by_class"] = names_json(term);
  return json;
}

constexpr std::pair<const char*, double DeviceConstants::*> kDeviceConstants[] = {PERFMODEL_FIELDS(
    DeviceConstants, launch_latency_us, collective_latency_us, copy_latency_us,
    blocking_read_latency_us, blocking_write_latency_us, kernel_gap_us, event_gap_us)};

OrderedJson device_json(const DeviceConstants& device) {
  OrderedJson json;
  for (const auto& [key, constant] : kDeviceConstants) json[key] = four_decimals(device.*constant);
  return json;
}

// Contexts are many: [mean, std, count, tensors, key of the name] under a hexadecimal key keeps the
// file small.
OrderedJson contexts_json(const OverheadTerm& term) {
  std::map<std::uint64_t, const OverheadStats*> sorted;
  for (const auto& [key, stats] : term.by_context) sorted[key] = &stats;
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, stats] : sorted) {
    OrderedJson& figures = json[hex(key)] = {four_decimals(stats->mean_us),
                                             four_decimals(stats->std_us), stats->count};
    if (const auto name = term.name_of_context.find(key); name != term.name_of_context.end()) {
      figures.push_back(four_decimals(stats->tensors));
      figures.push_back(hex(name->second));
    }
  }
  return json;
}

constexpr std::pair<const char*, bool TemplateCall::*> kCallFlags[] = {
    PERFMODEL_FIELDS(TemplateCall, pageable, blocking, collective, longest)};

OrderedJson call_json(const TemplateCall& call) {
  OrderedJson json = {{"call", call.call}};
  if (call.kind == TemplateCall::Kind::kCopy) json["copy"] = static_cast<int>(call.copy);
  if (call.kind == TemplateCall::Kind::kSet) json["set"] = true;
  if (call.kind == TemplateCall::Kind::kGraphLaunch) json["graph"] = true;
  if (call.kind == TemplateCall::Kind::kSync) json["sync"] = static_cast<int>(call.sync);
  for (const auto& [key, is_set] : kCallFlags) {
    if (call.*is_set) json[key] = true;
  }
  if (call.after_children > 0) json["after"] = call.after_children;
  if (call.tasks != 1) json["tasks"] = call.tasks;
  if (call.stream != 0) json["stream"] = call.stream;
  if (!call.kernel.empty()) json["kernel"] = call.kernel;
  return json;
}

// A key is only written if its value differs from the next wider key in the file.
OrderedJson templates_json(const LaunchTemplates& templates) {
  OrderedJson lists = OrderedJson::array();
  for (const auto& list : templates.lists) {
    OrderedJson calls = OrderedJson::array();
    for (const TemplateCall& call : list) calls.push_back(call_json(call));
    lists.push_back(std::move(calls));
  }
  OrderedJson keys = OrderedJson::object();
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    std::map<std::string, LaunchTemplates::Entry> sorted;
    for (const auto& [key, entry] : templates.by_key[level]) sorted[hex(key)] = entry;
    OrderedJson entries = OrderedJson::object();
    for (const auto& [key, entry] : sorted) entries[key] = {entry.list, entry.count};
    keys[std::string(to_string(static_cast<TemplateLevel>(level)))] = std::move(entries);
  }
  return {{"lists", std::move(lists)}, {"keys", std::move(keys)}};
}

OrderedJson factors_json(const TermFactors& factors) {
  OrderedJson made = OrderedJson::object();
  for (std::size_t i = 0; i < std::size(kHostTerms); ++i) {
    made[kHostTerms[i].key] = four_decimals(factors[i]);
  }
  return made;
}

OrderedJson programs_json(const std::vector<OverheadProgram>& programs) {
  OrderedJson list = OrderedJson::array();
  for (const OverheadProgram& program : programs) {
    OrderedJson json = {PERFMODEL_VALUES(program, name, gpu, sources)};
    json["launch_us"] = four_decimals(program.launch_us);
    if (program.left_out.empty()) {
      json["host_scale"] = four_decimals(program.host_scale);
      json["shared"] = four_decimals(program.shared);
    } else {
      json["left_out"] = program.left_out;
    }
    list.push_back(std::move(json));
  }
  return list;
}

namespace dom = simdjson::dom;

struct FormatProblem {
  std::string pointer, message;
};

/// Times beyond are no overheads (a year), and would not survive being rounded and written.
constexpr double kMostUs = 1e14;
constexpr double kMostCount = 9007199254740992.0;  // 2^53

/// A JSON pointer that is put together only if something is wrong there: a table has thousands of
/// places. It must not outlive its parts.
class Place {
 public:
  Place(const char* text) : token_(text) {}
  Place(std::string_view text) : token_(text) {}
  Place(const std::string& text) : token_(text) {}

  Place below(std::string_view key) const { return {this, key, true}; }
  Place below(std::size_t index) const {
    Place made(this, {}, true);
    made.index_ = index;
    return made;
  }
  friend Place operator+(const Place& above, const char* text) { return {&above, text, false}; }

  std::string text() const {
    std::string own = index_    ? fmt::format("/{}", *index_)
                      : is_key_ ? "/" + json_token(token_)
                                : std::string(token_);
    return above_ ? above_->text() + own : own;
  }

 private:
  Place(const Place* above, std::string_view token, bool is_key)
      : above_(above), token_(token), is_key_(is_key) {}

  const Place* above_ = nullptr;
  std::string_view token_;
  bool is_key_ = false;
  std::optional<std::size_t> index_;
};

using Found = simdjson::simdjson_result<dom::element>;

bool has(dom::element object, std::string_view key) {
  return object[key].error() == simdjson::SUCCESS;
}

constexpr std::uint8_t kNoDigit = 0xFF;
constexpr auto kHexDigits = [] {
  std::array<std::uint8_t, 256> digits{};
  digits.fill(kNoDigit);
  for (std::uint8_t i = 0; i < 16; ++i) {
    digits[static_cast<unsigned char>("0123456789abcdef"[i])] = i;
    digits[static_cast<unsigned char>("0123456789ABCDEF"[i])] = i;
  }
  return digits;
}();

/// Reads values of a table and keeps the error of the first bad one.
class ElementReader {
 public:
  const std::optional<FormatProblem>& problem() const { return problem_; }

  void fail(const Place& place, std::string message) {
    if (!problem_) problem_ = {place.text(), std::move(message)};
  }
  void expect(const Place& place, std::string_view what) {
    fail(place, fmt::format("expected {}", what));
  }

  // Every entry of an object that must be there. Values here and below are elements, or the result
  // of a look-up.
  template <class Value, class Visit>
  void each(const Place& pointer, Value value, Visit visit) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) {
      return expect(pointer, "an object, found none");
    }
    for (auto [key, entry] : object) {
      if (problem_) return;
      visit(key, entry, pointer.below(key));
    }
  }

  // A latency may be negative: clocks of host and device, as traces have them, disagree.
  template <class Value>
  double latency(const Place& pointer, Value value) {
    double us = 0;
    if (value.get(us) != simdjson::SUCCESS || !(std::abs(us) <= kMostUs)) {
      expect(pointer, "a number of microseconds, found something else");
      return 0;
    }
    return us;
  }

  template <class Value>
  double time(const Place& pointer, Value value) {
    const double us = latency(pointer, value);
    if (us < 0) expect(pointer, fmt::format("a number of microseconds from 0 on, found {}", us));
    return us;
  }

  // A whole number up to `most`.
  template <class Value>
  double whole(const Place& pointer, Value value, double most = kMostCount) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS || !(number >= 0 && number <= most) ||
        number != std::floor(number)) {
      expect(pointer, fmt::format("a whole number from 0 to {:.0f}, found something else", most));
      return 0;
    }
    return number;
  }

  // A mean length of lists: not whole.
  template <class Value>
  double count_of_tensors(const Place& pointer, Value value) {
    double number = 0;
    if (value.get(number) != simdjson::SUCCESS || !(number >= 0 && number <= kMostCount)) {
      expect(pointer, "a number of tensors from 0 on, found something else");
      return 0;
    }
    return number;
  }

  void strings(const Place& pointer, Found value, std::vector<std::string>& to) {
    dom::array items;
    if (value.get(items) != simdjson::SUCCESS) {
      return expect(pointer, "a list of strings, found none");
    }
    for (dom::element item : items) {
      std::string_view found;
      if (item.get(found) != simdjson::SUCCESS) return expect(pointer, "a list of strings");
      to.emplace_back(found);
    }
  }

  void text(dom::element root, const char* key, std::string& to) {
    std::string_view found;
    if (!has(root, key)) return;
    if (root[key].get(found) != simdjson::SUCCESS) return expect(Place("").below(key), "a string");
    to = found;
  }

  void stats(const Place& pointer, dom::element value, OverheadStats& out) {
    constexpr std::string_view kWanted = "an object with mean_us, found none";
    dom::object object;
    bool has_mean = false;
    if (value.get(object) != simdjson::SUCCESS) return expect(pointer, kWanted);
    for (const auto& [key, figure] : object) {
      const Place at = pointer.below(key);
      if (key == "mean_us") {
        has_mean = true;
        out.mean_us = time(at, figure);
      } else if (key == "median_us") {
        out.median_us = time(at, figure);
      } else if (key == "std_us") {
        out.std_us = time(at, figure);
      } else if (key == "count") {
        out.count = static_cast<std::uint64_t>(whole(at, figure));
      } else if (key == "tensors") {
        out.tensors = count_of_tensors(at, figure);
      }
    }
    if (!has_mean) expect(pointer, kWanted);
  }

  // Keys are hashes: 16 hexadecimal digits.
  std::uint64_t key_of(std::string_view text, const Place& pointer) {
    std::uint64_t value = 0;
    unsigned seen = text.empty() || text.size() > 16 ? kNoDigit : 0;
    for (const char c : text) {
      const unsigned digit = kHexDigits[static_cast<unsigned char>(c)];
      seen |= digit;
      value = value << 4 | (digit & 15);
    }
    if (seen > 15) expect(pointer, "a key of hexadecimal digits, found another");
    return value;
  }

 private:
  std::optional<FormatProblem> problem_;
};

void read_flag(ElementReader& json, TemplateCall& call, std::string_view key, const Place& at,
               bool flag) {
  if (key == "set") {
    if (flag) call.kind = TemplateCall::Kind::kSet;
  } else if (key == "graph") {
    if (flag) call.kind = TemplateCall::Kind::kGraphLaunch;
  } else {
    const auto known = std::ranges::find(
        kCallFlags, key, [](const auto& row) { return std::string_view(row.first); });
    if (known == std::end(kCallFlags)) return json.expect(at, "no such flag of a call");
    call.*known->second = flag;
  }
}

void read_number(ElementReader& json, TemplateCall& call, std::string_view key, const Place& at,
                 dom::element value) {
  constexpr double kMost16 = std::numeric_limits<std::uint16_t>::max();
  if (key == "copy") {
    call.kind = TemplateCall::Kind::kCopy;
    call.copy = static_cast<CopyKind>(json.whole(at, value, static_cast<int>(CopyKind::kPeer)));
  } else if (key == "sync") {
    call.kind = TemplateCall::Kind::kSync;
    call.sync = static_cast<SyncKind>(json.whole(at, value, static_cast<int>(SyncKind::kEvent)));
  } else if (key == "after") {
    call.after_children = static_cast<std::uint16_t>(json.whole(at, value, kMost16));
  } else if (key == "tasks") {
    call.tasks = static_cast<std::uint16_t>(json.whole(at, value, kMost16));
  } else if (key == "stream") {
    call.stream =
        static_cast<std::int16_t>(json.whole(at, value, std::numeric_limits<std::int16_t>::max()));
  } else {
    json.expect(at, "no such number of a call");
  }
}

TemplateCall read_call(ElementReader& json, dom::element item, const Place& at) {
  TemplateCall call;
  json.each(at, item, [&](std::string_view key, dom::element value, const Place& place) {
    if (key == "call" || key == "kernel") {
      std::string_view text;
      if (value.get(text) != simdjson::SUCCESS) return json.expect(place, "a string");
      (key == "call" ? call.call : call.kernel) = text;
    } else if (value.is_bool()) {
      read_flag(json, call, key, place, value.get_bool().value_unsafe());
    } else {
      read_number(json, call, key, place, value);
    }
  });
  return call;
}

void read_template_keys(ElementReader& json, std::size_t num_lists, const Place& pointer,
                        Found keys, KeyTable<LaunchTemplates::Entry>& out) {
  constexpr double kMostEntries = std::numeric_limits<std::uint32_t>::max();
  json.each(pointer, keys, [&](std::string_view hash, dom::element value, const Place& at) {
    dom::array pair;
    if (value.get(pair) != simdjson::SUCCESS || pair.size() != 2) {
      return json.expect(at, "[list, count], found something else");
    }
    const double list = json.whole(at + "/0", pair.at(0));
    if (list >= static_cast<double>(num_lists)) {
      return json.expect(at, "the number of a list, found one out of range");
    }
    const double count = json.whole(at + "/1", pair.at(1), kMostEntries);
    out[json.key_of(hash, at)] = {static_cast<std::uint32_t>(list),
                                  static_cast<std::uint32_t>(count)};
  });
}

void read_templates(ElementReader& json, dom::element value, LaunchTemplates& templates) {
  const Place places("/templates/lists");
  dom::array lists;
  if (value["lists"].get(lists) != simdjson::SUCCESS) {
    return json.expect(places, "arrays of calls, found none");
  }
  for (dom::element list : lists) {
    const Place at = places.below(templates.lists.size());
    LaunchTemplate calls;
    dom::array items;
    if (list.get(items) != simdjson::SUCCESS) {
      return json.expect(at, "an array of calls, found none");
    }
    for (dom::element item : items) {
      calls.push_back(read_call(json, item, at.below(calls.size())));
    }
    templates.lists.push_back(std::move(calls));
  }
  for (std::size_t level = 0; level < kTemplateLevels; ++level) {
    const std::string_view name = to_string(static_cast<TemplateLevel>(level));
    const Found keys = value["keys"][name];
    if (keys.error() == simdjson::SUCCESS) {
      read_template_keys(json, templates.lists.size(), Place("/templates/keys").below(name), keys,
                         templates.by_key[level]);
    }
  }
}

class TableReader {
 public:
  explicit TableReader(OverheadTable& table) : table_(table) {}

  std::optional<FormatProblem> read(dom::element root) {
    head(root);
    if (json_.problem()) return json_.problem();
    provenance(root);
    for (const HostTerm& host : kHostTerms) {
      if (!host.figures || (host.may_be_missing && !has(root, host.key))) continue;
      const Place root_place(""), pointer = root_place.below(host.key);
      if (!host.is_gap) {
        named(pointer, root[host.key], (table_.*host.figures).by_name);
      } else if (!gaps(pointer, root[host.key], table_.*host.figures)) {
        return json_.problem();
      }
    }
    figures("/t4", root["t4"], table_.t4);
    figures("/ops", root["ops"], table_.ops);
    if (has(root, "data_loading")) {
      json_.stats("/data_loading", root["data_loading"].value_unsafe(), table_.data_loading);
    }
    totals_and_contexts(root);
    if (has(root, "gap_splits")) splits(root["gap_splits"]);
    if (has(root, "device")) device(root["device"].value_unsafe());
    if (has(root, "templates")) {
      read_templates(json_, root["templates"].value_unsafe(), table_.templates);
    }
    return json_.problem();
  }

 private:
  void head(dom::element root) {
    std::string_view schema;
    if (root["schema"].get(schema) != simdjson::SUCCESS || schema != schemas::kOverheads.name) {
      return json_.expect("/schema", "\"perfmodel-overheads\", found another document");
    }
    std::int64_t version = 0;
    if (root["version"].get(version) != simdjson::SUCCESS) {
      return json_.expect("/version", "a version, found none");
    }
    if (std::string problem = version_problem(schemas::kOverheads, version); !problem.empty()) {
      return json_.fail("/version", std::move(problem));
    }
    std::string_view method;
    if (root["method"].get(method) != simdjson::SUCCESS) {
      return json_.expect("/method", "a string, found none");
    }
    if (const auto parsed = parse_overhead_method(method)) {
      table_.method = *parsed;
    } else {
      json_.fail("/method", parsed.error().message);
    }
  }

  void programs(Found value) {
    dom::array items;
    if (value.get(items) != simdjson::SUCCESS) {
      return json_.expect("/programs", "a list of objects, found none");
    }
    for (dom::element item : items) {
      const std::string at = fmt::format("/programs/{}", table_.programs.size());
      OverheadProgram program;
      json_.text(item, "name", program.name);
      json_.text(item, "gpu", program.gpu);
      json_.text(item, "left_out", program.left_out);
      if (has(item, "sources")) json_.strings(at + "/sources", item["sources"], program.sources);
      if (has(item, "launch_us")) {
        program.launch_us = json_.time(at + "/launch_us", item["launch_us"]);
      }
      if (has(item, "host_scale")) {
        program.host_scale = json_.time(at + "/host_scale", item["host_scale"]);
      }
      if (has(item, "shared")) program.shared = json_.time(at + "/shared", item["shared"]);
      table_.programs.push_back(std::move(program));
    }
  }

  void provenance(dom::element root) {
    json_.text(root, "gpu", table_.gpu);
    json_.text(root, "command", table_.command);
    if (has(root, "sources")) json_.strings("/sources", root["sources"], table_.sources);
    if (has(root, "profiler_cost_us")) {
      table_.profiler_cost_us = json_.time("/profiler_cost_us", root["profiler_cost_us"]);
    }
    if (has(root, "iterations")) {
      table_.iterations = static_cast<std::size_t>(json_.whole("/iterations", root["iterations"]));
    }
    json_.text(root, "unfit_for_pools", table_.unfit_for_pools);
    if (has(root, "python_recorded") &&
        root["python_recorded"].get(table_.python_recorded) != simdjson::SUCCESS) {
      return json_.expect("/python_recorded", "true or false, found something else");
    }
    if (has(root, "collector")) collector(root["collector"]);
    if (has(root, "without_collector")) factors(root["without_collector"]);
    if (has(root, "programs")) programs(root["programs"]);
  }

  void collector(dom::element value) {
    std::string_view name;
    if (value.get(name) == simdjson::SUCCESS) {
      for (int i = 0; i <= static_cast<int>(Collector::kProfilerAndObserver); ++i) {
        table_.collector = static_cast<Collector>(i);
        if (to_string(table_.collector) == name) return;
      }
    }
    json_.expect("/collector", "the name of a collector, found something else");
  }

  void factors(dom::element value) {
    TermFactors& factors = table_.without_collector.emplace();
    for (std::size_t i = 0; i < std::size(kHostTerms); ++i) {
      const Place at = Place("/without_collector").below(kHostTerms[i].key);
      const bool is_factor = value[kHostTerms[i].key].get(factors[i]) == simdjson::SUCCESS &&
                             factors[i] >= 0.001 && factors[i] <= 1000;
      if (!is_factor) return json_.expect(at, "a factor from 0.001 to 1000, found something else");
    }
  }

  // False if the rest of the file cannot be checked.
  bool gaps(const Place& pointer, Found value, OverheadTerm& out) {
    dom::element gap;
    if (value.get(gap) != simdjson::SUCCESS) {
      json_.expect(pointer, "an object with mean_us, found none");
      return false;
    }
    json_.stats(pointer, gap, out.all);
    if (gap.is_object() && has(gap, "by_class")) {
      named(pointer + "/by_class", gap["by_class"], out.by_name);
    }
    return true;
  }

  void named(const Place& pointer, Found value,
             std::unordered_map<std::uint64_t, OverheadTerm::Named>& out) {
    json_.each(pointer, value, [&](std::string_view name, dom::element entry, const Place& at) {
      OverheadTerm::Named made{.name = std::string(name), .stats = {}};
      json_.stats(at, entry, made.stats);
      out[hash_text(name)] = std::move(made);
    });
  }

  void figures(const Place& pointer, Found value, std::map<std::string, OverheadStats>& out) {
    json_.each(pointer, value, [&](std::string_view name, dom::element entry, const Place& at) {
      json_.stats(at, entry, out[std::string(name)]);
    });
  }

  void totals_and_contexts(dom::element root) {
    for (const HostTerm& host : kHostTerms) {
      if (!host.figures) continue;
      OverheadTerm& term = table_.*host.figures;
      dom::element total;
      if (root["totals"][host.key].get(total) == simdjson::SUCCESS) {
        json_.stats(Place("/totals").below(host.key), total, term.all);
      }
      const Found contexts = root["contexts"][host.key];
      if (contexts.error() == simdjson::SUCCESS) {
        context_figures(Place("/contexts").below(host.key), contexts, term);
      }
    }
  }

  void context_figures(const Place& pointer, Found contexts, OverheadTerm& term) {
    json_.each(pointer, contexts, [&](std::string_view hash, dom::element value, const Place& at) {
      dom::array list;
      std::array<dom::element, 5> figures;
      std::size_t count = 0;
      if (value.get(list) == simdjson::SUCCESS) {
        for (const dom::element figure : list) figures[std::min(count++, 4UL)] = figure;
      }
      if (count != 3 && count != 5) {
        return json_.expect(
            at,
            "[mean_us, std_us, count] or [..., tensors, key of the name], found something else");
      }
      const std::uint64_t key = json_.key_of(hash, at);
      const double mean_us = json_.time(at + "/0", figures[0]);
      OverheadStats& stats = term.by_context[key];
      stats = {.mean_us = mean_us,
               .std_us = json_.time(at + "/1", figures[1]),
               .median_us = mean_us,
               .count = static_cast<std::uint64_t>(json_.whole(at + "/2", figures[2]))};
      if (count == 3) return;
      stats.tensors = json_.count_of_tensors(at + "/3", figures[3]);
      std::string_view name;
      if (figures[4].get(name) != simdjson::SUCCESS) {
        return json_.expect(at + "/4", "a key of hexadecimal digits, found something else");
      }
      term.name_of_context[key] = json_.key_of(name, at + "/4");
    });
  }

  void splits(Found entries) {
    json_.each(
        "/gap_splits", entries, [&](std::string_view key, dom::element value, const Place& at) {
          dom::array shares;
          GapSplit split;
          const bool is_pair = value.get(shares) == simdjson::SUCCESS && shares.size() == 2 &&
                               shares.at(0).get(split.tail) == simdjson::SUCCESS &&
                               shares.at(1).get(split.head) == simdjson::SUCCESS;
          if (!is_pair || !(split.tail >= 0 && split.tail <= 1) ||
              !(split.head >= 0 && split.head <= 1)) {
            return json_.expect(at, "two shares from 0 to 1, found something else");
          }
          table_.gap_splits[json_.key_of(key, at)] = split;
        });
  }

  void device(dom::element value) {
    if (!value.is_object()) return json_.expect("/device", "an object, found none");
    for (const auto& [key, constant] : kDeviceConstants) {
      if (!has(value, key)) continue;
      table_.device.*constant = json_.latency(Place("/device").below(key), value[key]);
    }
  }

  OverheadTable& table_;
  ElementReader json_;
};

}  // namespace

std::string overheads_json(const OverheadTable& table) {
  OrderedJson json = {{"schema", schemas::kOverheads.name},
                      {"version", schemas::kOverheads.version},
                      {"minor_version", schemas::kOverheads.minor_version},
                      {"program", {{"version", program_version()}, {"git", git_revision()}}},
                      {"method", to_string(table.method)},
                      PERFMODEL_VALUES(table, gpu, sources, command, profiler_cost_us, iterations,
                                       unfit_for_pools, python_recorded),
                      {"collector", to_string(table.collector)},
                      {"programs", programs_json(table.programs)}};
  if (table.without_collector) json["without_collector"] = factors_json(*table.without_collector);
  for (const HostTerm& host : kHostTerms) json[host.key] = term_json(table, host);
  json["ops"] = figures_json(table.ops);
  json["totals"] = OrderedJson::object();
  for (const HostTerm& host : kHostTerms) {
    if (host.figures && !host.is_gap) json["totals"][host.key] = to_json((table.*host.figures).all);
  }
  json["data_loading"] = to_json(table.data_loading);
  json["device"] = device_json(table.device);
  json["recording"] = recording_json<OrderedJson>(table.recording);
  json["warnings"] = table.warnings;
  if (table.method == OverheadMethod::kContext) {
    for (const HostTerm& host : kHostTerms) {
      if (host.figures) json["contexts"][host.key] = contexts_json(table.*host.figures);
    }
  }
  if (!table.gap_splits.empty()) {
    std::map<std::string, GapSplit> sorted;
    for (const auto& [key, split] : table.gap_splits) sorted[hex(key)] = split;
    OrderedJson splits = OrderedJson::object();
    for (const auto& [key, split] : sorted)
      splits[key] = {four_decimals(split.tail), four_decimals(split.head)};
    json["gap_splits"] = std::move(splits);
  }
  if (!table.templates.lists.empty()) json["templates"] = templates_json(table.templates);
  // Without indentation: it would be a fifth of the file, which every prediction reads.
  return json.dump(0, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<void> write_overheads(const OverheadTable& table, const std::filesystem::path& file) {
  return write_file(file, overheads_json(table));
}

Result<OverheadTable> read_overheads(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    return fail(ErrorCode::kIo, "expected a file, found a directory", file);
  }
  const auto read = read_json_text(file, "overhead table");
  if (!read && read.error().code != ErrorCode::kIo) return Unexpected{read.error()};
  if (!read) {
    return fail(ErrorCode::kIo, "expected a readable file, found none", file);
  }
  const std::string& text = *read;
  const auto failure = [&](ErrorCode code, std::optional<std::size_t> offset, std::string pointer,
                           std::string message) {
    Error error{.code = code,
                .message = std::move(message),
                .file = file,
                .json_pointer = std::move(pointer)};
    if (offset) set_position(error, *offset, text);
    return Unexpected{std::move(error)};
  };
  dom::parser parser;
  dom::element root;
  if (auto error = parser.parse(text).get(root)) {
    if (error == simdjson::MEMALLOC) throw std::bad_alloc();
    const std::string kind = file_kind(text, file);
    return failure(ErrorCode::kSyntax, find_json_defect(text), "",
                   kind.empty()
                       ? fmt::format("expected JSON, found: {}", simdjson::error_message(error))
                       : "expected JSON, found " + kind);
  }
  OverheadTable table;
  if (auto problem = TableReader(table).read(root)) {
    return failure(ErrorCode::kFormat, find_json_pointer(text, problem->pointer), problem->pointer,
                   problem->message);
  }
  return table;
}

}  // namespace perfmodel
