#include "job_format.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "layout/layout_fields.hpp"
#include "perfmodel/data_files.hpp"

namespace perfmodel {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFacts[] = {
    "model",              // a name, a config.json, or a folder with one
    "model_family",       // "llama3" of a model "llama3-8b"
    "model_size",         // "8b"
    "nodes",              //
    "gpus_per_node",      //
    "dp_shard",           // data parallel ranks that share the parameters; rest: all that are left
    "dp_replicate",       // groups of such ranks
    "sharding",           // zero, unless "zero" is said
    "accumulation",       // microbatches of a rank and step
    "rank_batch",         // sequences of a rank at once: with pipelines, of all its microbatches
    "pipeline_batch",     // sequences of a microbatch in a pipeline
    "layers_per_chunk",   // a pipeline stage has several chunks
    "words",              // the vocabulary, filled up to a multiple of the next and of tp
    "vocabulary_step",    //
    "group_query",        // false: kv_heads does not count
    "experts_follow_tp",  // true: etp is tp
    "position_kind",      // rotary or learned
    "max_positions",      // rows of learned positions
    "checkpointing",      // true: everything is recomputed
    "recompute_option",   // counts with recompute op: op, or N for each Nth layer
    "recompute_method",   // counts with recompute full: uniform or block
    "recompute_layers",   // the method's count of layers
    "recompute_modules",  // counts with recompute selective: modules of Megatron
    "dispatcher_type",    // alltoall, or flex: the next
    "flex_backend",       // counts with dispatcher_type flex: deepep or hybridep
    "low_precision",      // counts before "precision"
    "adapter",            // lora, qlora or full
    "deepspeed_file",     // whose settings belong to the job
};

bool is_known_field(std::string_view name) {
  return name == kIgnored || name == kNotModelled || find_layout_field(name) ||
         std::ranges::find(kFacts, name) != std::end(kFacts);
}

std::vector<std::string> table_words(const std::string& line) {
  std::istringstream stream(line.substr(0, line.find('#')));
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

std::pair<std::string, std::string> parted(const std::string& word) {
  const std::size_t equals = std::min(word.find('='), word.size());
  return {word.substr(0, equals), word.substr(std::min(equals + 1, word.size()))};
}

std::string joined(const std::vector<std::string>& words, std::size_t from) {
  return fmt::format(
      "{}", fmt::join(words.begin() + static_cast<std::ptrdiff_t>(from), words.end(), " "));
}

// "@key NAME" and the like. False: no such line.
bool read_head(const std::vector<std::string>& words, JobFormat& format) {
  if (words.size() < 2) return false;
  const std::string& what = words[0];
  if (what == "@title")
    format.title = joined(words, 1);
  else if (what == "@key")
    format.keys.push_back(words[1]);
  else if (what == "@strip")
    format.prefixes.push_back(words[1]);
  else if (what == "@model" && words.size() == 3)
    format.models.emplace_back(words[1], words[2]);
  else if (what == "@default" && words.size() == 3 && is_known_field(words[1])) {
    format.defaults.emplace_back(words[1], words[2]);
  } else {
    return false;
  }
  return true;
}

bool read_rule(const std::vector<std::string>& words, JobFormat& format) {
  if (words.size() < 2 || !is_known_field(words[1])) return false;
  JobRule rule = {.key = words[0], .field = words[1]};
  for (std::size_t i = 2; i < words.size(); ++i) {
    rule.values.push_back(parted(words[i]));
    if (rule.values.back().second.empty()) return false;
  }
  format.rules.push_back(std::move(rule));
  return true;
}

// Adds the rows of another table of the folder.
Result<void> include_format(const fs::path& file, JobFormat& format) {
  PERFMODEL_TRY(other, read_job_format(file));
  format.rules.insert(format.rules.end(), other->rules.begin(), other->rules.end());
  format.defaults.insert(format.defaults.end(), other->defaults.begin(), other->defaults.end());
  format.models.insert(format.models.end(), other->models.begin(), other->models.end());
  return {};
}

Result<std::vector<JobFormat>> all_formats() {
  PERFMODEL_TRY(data, find_data_folder());
  std::vector<fs::path> files;
  std::error_code failure;
  for (fs::directory_iterator at(*data / "jobs", failure), end; !failure && at != end; ++at) {
    if (at->path().extension() == ".txt") files.push_back(at->path());
  }
  std::ranges::sort(files);
  std::vector<JobFormat> formats;
  for (const fs::path& file : files) {
    PERFMODEL_TRY(format, read_job_format(file));
    if (!format->keys.empty()) formats.push_back(std::move(*format));
  }
  return formats;
}

std::ptrdiff_t keys_found(const JobFormat& format, const JobEntries& entries) {
  return std::ranges::count_if(format.keys, [&](const std::string& key) {
    return std::ranges::find(entries, key, &JobEntry::key) != entries.end();
  });
}

// The key without the longest of the format's prefixes.
std::string_view without_prefix(const JobFormat& format, std::string_view key) {
  std::size_t longest = 0;
  for (const std::string& prefix : format.prefixes) {
    if (key.starts_with(prefix)) longest = std::max(longest, prefix.size());
  }
  return key.substr(longest);
}

bool matches(std::string_view pattern, std::string_view key) {
  if (!pattern.ends_with('*')) return pattern == key;
  return key.starts_with(pattern.substr(0, pattern.size() - 1));
}

}  // namespace

Result<JobFormat> read_job_format(const fs::path& file) {
  std::ifstream stream(file);
  if (!stream)
    return fail(ErrorCode::kIo, "expected a readable table of settings, found none", file);
  JobFormat format = {.name = file.stem().string()};
  int number = 0;
  for (std::string line; std::getline(stream, line);) {
    ++number;
    const std::vector<std::string> words = table_words(line);
    if (words.empty()) continue;
    if (words[0] == "@include" && words.size() == 2) {
      PERFMODEL_TRY(included, include_format(file.parent_path() / words[1], format));
    } else if (!(words[0].starts_with('@') ? read_head(words, format) : read_rule(words, format))) {
      return Unexpected{Error{
          .code = ErrorCode::kFormat,
          .message = fmt::format("expected KEY FIELD [THEIRS=OURS ...] with a field of layout, or "
                                 "@title, @key, @strip, @default, @model, @include, found \"{}\"",
                                 line),
          .file = file,
          .line = number}};
    }
  }
  return format;
}

Result<JobFormat> recognised_format(const JobEntries& entries, const fs::path& file) {
  PERFMODEL_TRY(formats, all_formats());
  const auto best = std::ranges::max_element(
      *formats, {}, [&](const JobFormat& format) { return keys_found(format, entries); });
  if (best != formats->end() && keys_found(*best, entries) > 0) return std::move(*best);
  std::vector<std::string> titles, found;
  for (const JobFormat& format : *formats) titles.push_back(format.title);
  for (const JobEntry& entry : entries) {
    if (found.size() < 4) found.push_back(entry.key);
  }
  return fail(
      ErrorCode::kFormat,
      fmt::format("expected a training job of one of {}, found none of their settings but {}",
                  fmt::join(titles, ", "), fmt::join(found, ", ")),
      file);
}

const JobRule* find_rule(const JobFormat& format, std::string_view key) {
  const std::string_view plain = without_prefix(format, key);
  for (const std::string_view exact : {key, plain}) {
    const auto found = std::ranges::find(format.rules, exact, &JobRule::key);
    if (found != format.rules.end()) return &*found;
  }
  const auto loose = std::ranges::find_if(
      format.rules, [&](const JobRule& rule) { return matches(rule.key, plain); });
  return loose == format.rules.end() ? nullptr : &*loose;
}

}  // namespace perfmodel
