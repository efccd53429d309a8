#include "perfmodel/sweep/detail/sweep_spec.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "builder_options.hpp"
#include "builders/named_models.hpp"
#include "files/json_file.hpp"
#include "files/json_position.hpp"
#include "fingerprint.hpp"
#include "gpu/architecture_files.hpp"
#include "perfmodel/choose_overheads.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/topology.hpp"

namespace perfmodel::sweep {
namespace fs = std::filesystem;
namespace {

constexpr const char* kSame = "same";
constexpr const char* kUsual = "usual";

const Json* filled_list(ObjectReader& reader, const char* key) {
  const Json* list = reader.array(key);
  if (list && list->empty()) reader.reject(key, "at least one entry");
  return list;
}

GraphSource::Measured read_measured(const Json& json, const std::string& pointer,
                                    std::optional<Error>& error) {
  ObjectReader reader(json, pointer, error);
  GraphSource::Measured step{.us = reader.positive("us")};
  if (reader.has("gpu")) step.gpu = reader.string("gpu");
  if (reader.has("batch")) step.batch = static_cast<std::int64_t>(reader.positive("batch"));
  reader.finish();
  return step;
}

// "dlrm batch=512 preset=mlperf"; the options of a JSON object are sorted by name.
std::string default_name(const GraphSource& source) {
  std::string name = source.builder;
  for (const auto& [option, value] : source.options) name += " " + option + "=" + value;
  return name;
}

std::optional<ParallelStrategy> read_strategy(const Json& json, const std::string& name,
                                              ObjectReader& reader) {
  if (name == to_string(ParallelStrategy::kDdp)) return ParallelStrategy::kDdp;
  if (name == to_string(ParallelStrategy::kFsdp)) return ParallelStrategy::kFsdp;
  if (name != "none" && json.is_object() && json.contains("strategy")) {
    reader.reject("strategy", "\"none\", \"ddp\" or \"fsdp\"");
  }
  return std::nullopt;
}

// One world or a list of them.
std::vector<std::int64_t> read_worlds(const Json& json, ObjectReader& reader) {
  if (reader.has("world") && !json["world"].is_array()) return {reader.whole_number("world", 1)};
  std::vector<std::int64_t> worlds = reader.whole_numbers("world", 1);
  if (worlds.empty()) reader.fail_at(reader.pointer("world"), "at least one world", "none");
  return worlds;
}

// The axes in the order in which their rewrites are applied.
std::vector<std::size_t> applied_order(const std::vector<std::string>& rewrites,
                                       const std::vector<RewriteAxis>& axes) {
  std::vector<std::size_t> order;
  for (const std::string& name : rewrites) {
    const auto axis = std::ranges::find(axes, name, &RewriteAxis::name);
    if (axis != axes.end()) order.push_back(static_cast<std::size_t>(axis - axes.begin()));
  }
  return order;
}

bool has_too_many_rows(const SweepSpec& spec) {
  std::vector<std::size_t> sizes = {spec.graphs.size(), spec.gpus.size(), spec.topologies.size(),
                                    spec.strategies.size()};
  for (const RewriteAxis& axis : spec.axes) sizes.push_back(axis.values.size());
  std::uint64_t count = 1;
  for (const std::size_t size : sizes) {
    count *= size;
    if (count > kMostRows) return true;
  }
  return false;
}

class SpecParser {
 public:
  SpecParser(const GraphToolbox& toolbox, fs::path folder, const std::vector<Gpu>& gpus,
             fs::path architectures, std::optional<Error>& error)
      : toolbox_(toolbox),
        folder_(std::move(folder)),
        gpus_(gpus),
        architectures_(std::move(architectures)),
        error_(error) {}

  SweepSpec parse(const Json& document) {
    ObjectReader root(document, "", error_);
    root.expect_schema(schemas::kSweep);
    if (root.has("models")) spec_.models = models(root.string("models"));
    for (const char* key : {"host", "overheads"}) {  // the second is its older name
      if (root.has(key)) spec_.overheads = overheads(root.string(key));
    }
    if (root.has("host_scale")) spec_.host_scale = root.positive("host_scale");
    if (const Json* list = filled_list(root, "graphs")) each(*list, "/graphs", &SpecParser::graph);
    if (root.has("rewrites")) {
      if (const Json* list = root.array("rewrites")) each(*list, "/rewrites", &SpecParser::axis);
    }
    if (const Json* list = filled_list(root, "gpus")) each(*list, "/gpus", &SpecParser::gpu);
    if (root.has("topologies")) {
      spec_.topologies.clear();
      const Json* list = filled_list(root, "topologies");
      if (list) each(*list, "/topologies", &SpecParser::topology);
    }
    if (root.has("strategies")) {
      spec_.strategies.clear();
      const Json* list = filled_list(root, "strategies");
      if (list) each(*list, "/strategies", &SpecParser::strategy);
    }
    root.finish();
    spec_.applied = applied_order(toolbox_.rewrites, spec_.axes);
    if (!error_ && has_too_many_rows(spec_)) {
      fail_at("", fmt::format("expected at most {} rows, found more", kMostRows));
    }
    return std::move(spec_);
  }

 private:
  void fail_at(const std::string& pointer, std::string message) {
    if (error_) return;
    error_ = Error{.message = std::move(message), .json_pointer = pointer};
  }

  // Reports an error of another function at its place in the spec.
  void pass_on(const std::string& pointer, const Error& problem) {
    if (error_) return;
    const bool inside = problem.file.empty();
    error_ = Error{.code = problem.code,
                   .message = inside ? problem.message : to_string(problem),
                   .json_pointer = inside ? pointer + problem.json_pointer : pointer};
  }

  void each(const Json& list, const std::string& pointer,
            void (SpecParser::*entry)(const Json&, const std::string&)) {
    for (std::size_t i = 0; i < list.size() && !error_; ++i) {
      (this->*entry)(list[i], fmt::format("{}/{}", pointer, i));
    }
  }

  fs::path resolved(const std::string& file) const { return folder_ / file; }

  fs::path overheads(const std::string& text) const {
    const bool word = text == kReferenceHost || text == kMeasuredHost || text == kServerOf2023;
    return word ? fs::path(text) : resolved(text);
  }

  std::string models(const std::string& text) const {
    const bool name = text == "learned" || text == "heuristic" || text == "roofline";
    return name ? text : resolved(text).string();
  }

  std::string identity_of(const std::string& pointer, const Fingerprint& texts,
                          const std::vector<fs::path>& files) {
    Fingerprint made = texts;
    for (const fs::path& file : files) {
      if (auto added = made.add_file(file); !added) pass_on(pointer, added.error());
    }
    return made.short_text();
  }

  // Files come first.
  bool is_model(const std::string& name) const {
    return !fs::exists(resolved(name)) && graph_of_name(name).has_value();
  }

  void graph(const Json& json, const std::string& pointer) {
    GraphSource source{.folder = folder_};
    if (json.is_string()) {
      source.name = json.get<std::string>();
      source.file = is_model(source.name) ? fs::path(source.name) : resolved(source.name);
    } else {
      ObjectReader reader(json, pointer, error_);
      if (reader.has("name")) source.name = reader.string("name");
      if (reader.has("file")) {
        const std::string file = reader.string("file");
        source.file = resolved(file);
        if (source.name.empty()) source.name = file;
      } else {
        source.builder = reader.string("build");
        if (reader.has("options")) {
          if (const Json* options = reader.object("options")) {
            source.options = builder_options(*options, pointer + "/options", error_);
          }
        }
        if (source.name.empty()) source.name = default_name(source);
      }
      if (reader.has("measured_step")) {
        if (const Json* step = reader.object("measured_step")) {
          source.measured = read_measured(*step, pointer + "/measured_step", error_);
        }
      }
      reader.finish();
    }
    if (source.name.empty()) fail_at(pointer, "expected a name, found none");
    if (error_) return;
    if (!graph_names_.insert(source.name).second) {
      return fail_at(pointer, fmt::format("expected each graph once, found \"{}\" again (\"name\" "
                                          "tells graphs apart)",
                                          source.name));
    }
    identify(source, pointer);
    spec_.graphs.push_back(std::move(source));
  }

  void identify(GraphSource& source, const std::string& pointer) {
    Fingerprint texts;
    if (const auto& step = source.measured) {
      texts.add(fmt::format("measured {} {} {}", step->us, step->gpu, step->batch));
    }
    if (source.file == source.name && is_model(source.name)) {
      texts.add("model " + source.name);
      source.identity = texts.short_text();
      return;
    }
    if (!source.file.empty()) {
      source.identity = identity_of(pointer, texts, {source.file});
      return;
    }
    if (auto built = toolbox_.build(source); !built) return pass_on(pointer, built.error());
    texts.add(source.builder);
    for (const auto& [name, value] : source.options) {
      texts.add(name);
      texts.add(value);
    }
    source.identity = identity_of(pointer, texts, toolbox_.files(source));
  }

  void axis(const Json& json, const std::string& pointer) {
    if (!json.is_object() || json.size() != 1) {
      return fail_at(pointer,
                     "expected an object with one rewrite and its values, found " + found(json));
    }
    const std::string& name = json.begin().key();
    const std::string at = pointer + "/" + json_token(name);
    if (std::ranges::find(toolbox_.rewrites, name) == toolbox_.rewrites.end()) {
      return fail_at(at, fmt::format("expected a rewrite, found \"{}\" (nearest: \"{}\")", name,
                                     nearest_name(name, toolbox_.rewrites)));
    }
    if (std::ranges::find(spec_.axes, name, &RewriteAxis::name) != spec_.axes.end()) {
      return fail_at(at, fmt::format("expected each rewrite once, found \"{}\" again", name));
    }
    const Json& values = json.begin().value();
    if (!values.is_array() || values.empty()) {
      return fail_at(at, "expected a list of at least one value, found " + found(values));
    }
    RewriteAxis made{.name = name};
    std::set<std::string> seen;
    for (std::size_t i = 0; i < values.size() && !error_; ++i) {
      const std::string place = fmt::format("{}/{}", at, i);
      const auto text = values[i].is_boolean() ? std::nullopt : scalar_text(values[i]);
      if (!text || text->empty()) {
        return fail_at(place, "expected a text or a number, found " + found(values[i]));
      }
      if (!seen.insert(*text).second) {
        return fail_at(place, fmt::format("expected each value once, found {} again", *text));
      }
      RewriteAxis::Value value{.text = *text};
      if (*text != kSame) {
        auto rewrite = toolbox_.rewrite(name, *text);
        if (!rewrite) return pass_on(place, rewrite.error());
        value.rewrite = std::move(*rewrite);
      }
      made.values.push_back(std::move(value));
    }
    spec_.axes.push_back(std::move(made));
  }

  void gpu(const Json& json, const std::string& pointer) {
    if (!json.is_string()) return fail_at(pointer, "expected a string, found " + found(json));
    GpuChoice choice{.asked = json.get<std::string>()};
    if (choice.asked.ends_with(".json")) {
      const fs::path file = resolved(choice.asked);
      auto read = read_gpu(file, architectures_);
      if (!read) return pass_on(pointer, read.error());
      choice.name = read->name;
      choice.asked = file.string();
      choice.identity = identity_of(pointer, architectures_of(pointer, file), {file});
      choice.stand_ins = stand_ins(*read);
    } else {
      const auto position = find_gpu(choice.asked, gpus_);
      if (!position) return pass_on(pointer, position.error());
      choice.asked = choice.name = gpus_[*position].name;
      choice.stand_ins = stand_ins(gpus_[*position]);
    }
    if (std::ranges::find(spec_.gpus, choice.name, &GpuChoice::name) != spec_.gpus.end()) {
      return fail_at(pointer, fmt::format("expected each GPU once, found {} again", choice.name));
    }
    spec_.gpus.push_back(std::move(choice));
  }

  // The data folder's architectures are in the fingerprint of the whole sweep.
  Fingerprint architectures_of(const std::string& pointer, const fs::path& gpu_file) {
    Fingerprint made;
    const fs::path folder = architectures_for(gpu_file, architectures_);
    if (folder == architectures_) return made;
    if (auto added = made.add_folder(folder); !added) pass_on(pointer, added.error());
    return made;
  }

  void topology(const Json& json, const std::string& pointer) {
    if (!json.is_string()) return fail_at(pointer, "expected a string, found " + found(json));
    std::string name = json.get<std::string>();
    if (name != kUsual) {
      const auto known = TopologyCatalog::builtin().named(name);
      if (!known) return pass_on(pointer, known.error());
      name = (*known)->name;
    }
    if (std::ranges::find(spec_.topologies, name) != spec_.topologies.end()) {
      return fail_at(pointer, fmt::format("expected each topology once, found {} again", name));
    }
    spec_.topologies.push_back(std::move(name));
  }

  void strategy(const Json& json, const std::string& pointer) {
    ObjectReader reader(json, pointer, error_);
    const std::string name = reader.string("strategy");
    const auto strategy = read_strategy(json, name, reader);
    std::vector<std::int64_t> worlds = {0};
    if (strategy || reader.has("world")) worlds = read_worlds(json, reader);
    reader.finish();
    for (std::int64_t world : worlds) {
      const StrategyChoice choice{.strategy = strategy, .world = world};
      if (std::ranges::find(spec_.strategies, choice) != spec_.strategies.end()) {
        return fail_at(pointer, fmt::format("expected each strategy and world once, found {} {} "
                                            "again",
                                            name, world));
      }
      spec_.strategies.push_back(choice);
    }
  }

  const GraphToolbox& toolbox_;
  fs::path folder_;
  const std::vector<Gpu>& gpus_;
  fs::path architectures_;
  std::optional<Error>& error_;
  SweepSpec spec_;
  std::set<std::string> graph_names_;
};

}  // namespace

Result<SweepSpec> read_sweep_spec(const fs::path& file, const GraphToolbox& toolbox,
                                  const fs::path& data) {
  PERFMODEL_TRY(gpus, read_gpus(data / "gpus"));
  return read_json_file(file, "sweep spec", [&](const Json& json, std::optional<Error>& error) {
    return SpecParser(toolbox, file.parent_path(), *gpus, architectures_beside(data / "gpus"),
                      error)
        .parse(json);
  });
}

}  // namespace perfmodel::sweep
