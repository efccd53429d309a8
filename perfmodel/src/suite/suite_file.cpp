#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/each_name.hpp"
#include "files/json_file.hpp"
#include "perfmodel/suite/detail/suite.hpp"
#include "sweep/builder_options.hpp"

namespace perfmodel::suite {
namespace fs = std::filesystem;
namespace {

class SuiteParser {
 public:
  SuiteParser(const fs::path& file, std::optional<Error>& error) : file_(file), error_(error) {}

  Suite parse(const Json& document) {
    Suite suite{.file = file_};
    ObjectReader root(document, "", error_);
    root.expect_schema(schemas::kSuite);
    suite.name = root.plain_name("name");
    PERFMODEL_READ(suite, root.string, title, gpu);
    suite.sources = root.strings("sources");
    each(root, "models", [&](const Json& json, const std::string& pointer) {
      suite.models.push_back(model(json, pointer));
    });
    root.finish();
    return suite;
  }

 private:
  // Entries of a list that has some.
  template <class Entry>
  void each(ObjectReader& reader, const char* key, Entry entry) {
    const Json* list = reader.array(key);
    if (!list) return;
    if (list->empty()) reader.reject(key, "at least one entry");
    for (std::size_t i = 0; i < list->size() && !error_; ++i) {
      entry((*list)[i], fmt::format("{}/{}", reader.pointer(key), i));
    }
  }

  SuiteModel model(const Json& json, const std::string& pointer) {
    ObjectReader reader(json, pointer, error_);
    SuiteModel made;
    made.name = reader.plain_name("name");
    PERFMODEL_READ(made, reader.string, title, domain, unit, batch_unit);
    if (reader.has("units_per_sample")) made.units_per_sample = reader.positive("units_per_sample");
    made.batches = reader.whole_numbers("batches", 1);
    check_batches(reader, made.batches);
    each(reader, "graphs", [&](const Json& entry, const std::string& place) {
      made.graphs.push_back(graph(entry, place));
    });
    if (reader.has("published_parameters")) {
      made.published_parameters = reader.whole_number("published_parameters", 1);
      made.parameters_source = reader.string("parameters_source");
    }
    if (reader.has("notes")) made.notes = reader.strings("notes");
    reader.finish();
    if (!error_ && !names_.insert(made.name).second) {
      reader.fail_at(reader.pointer("name"), "each model once",
                     fmt::format("\"{}\" again", made.name));
    }
    return made;
  }

  void check_batches(ObjectReader& reader, const std::vector<std::int64_t>& batches) {
    if (error_) return;
    if (batches.empty()) reader.reject("batches", "at least one batch size");
    if (std::ranges::adjacent_find(batches, std::greater_equal<>()) != batches.end()) {
      reader.reject("batches", "batch sizes that grow");
    }
  }

  SuiteGraph graph(const Json& json, const std::string& pointer) {
    ObjectReader reader(json, pointer, error_);
    SuiteGraph made{.pointer = pointer};
    made.source.builder = reader.string("build");
    made.source.folder = file_.parent_path();
    if (reader.has("options")) {
      if (const Json* options = reader.object("options")) {
        made.source.options = sweep::builder_options(*options, pointer + "/options", error_);
        if (options->contains("batch")) {
          reader.fail_at(pointer + "/options/batch", "the batch sizes under \"batches\"",
                         "one among the options");
        }
      }
    }
    if (reader.has("times")) made.times = reader.whole_number("times", 1);
    reader.finish();
    return made;
  }

  const fs::path& file_;
  std::optional<Error>& error_;
  std::set<std::string> names_;
};

fs::path suites_folder(const fs::path& data) { return data / "suites"; }

}  // namespace

Result<Suite> read_suite(const fs::path& file) {
  return read_json_file(file, "suite", [&](const Json& json, std::optional<Error>& error) {
    return SuiteParser(file, error).parse(json);
  });
}

Result<std::vector<Suite>> read_suites(const fs::path& data) {
  PERFMODEL_TRY(files, json_files(suites_folder(data), "suites"));
  std::vector<Suite> suites;
  for (const fs::path& file : *files) {
    PERFMODEL_TRY(suite, read_suite(file));
    suites.push_back(std::move(*suite));
  }
  return suites;
}

Result<Suite> find_suite(std::string_view name, const fs::path& data) {
  if (name.ends_with(".json")) return read_suite(name);
  PERFMODEL_TRY(suites, read_suites(data));
  std::vector<std::string> names;
  for (Suite& suite : *suites) {
    if (suite.name == name) return std::move(suite);
    names.push_back(suite.name);
  }
  return fail(ErrorCode::kUnknownName,
              fmt::format("expected a suite ({}) or a file that ends in .json, found \"{}\"",
                          fmt::join(names, ", "), name));
}

}  // namespace perfmodel::suite
