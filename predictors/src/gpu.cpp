#include "perfmodel/predictors/gpu.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

namespace perfmodel {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

/// What stands in the file, short enough for a message.
std::string found(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 40) text = text.substr(0, 37) + "...";
  return text;
}

/// Reads typed members of one JSON object and keeps the first error. Every member must be asked
/// for: those left over are unknown keys.
class ObjectReader {
 public:
  ObjectReader(const Json& object, std::string pointer, std::optional<Error>& error)
      : object_(object), pointer_(std::move(pointer)), error_(error) {
    if (!object_.is_object()) fail_at(pointer_, "an object", found(object_));
  }

  std::string string(const char* key) {
    const Json* value = member(key);
    if (value && !value->is_string()) expect(key, "a string", *value);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  }

  /// A number above 0, or 0 when it is null and null is allowed here.
  double positive(const char* key, bool null_allowed = false) {
    return optional_positive(key, null_allowed).value_or(0);
  }

  std::optional<double> optional_positive(const char* key, bool null_allowed = true) {
    const Json* value = member(key);
    if (!value || (null_allowed && value->is_null())) return std::nullopt;
    const char* what = null_allowed ? "a number above 0 or null" : "a number above 0";
    if (!value->is_number()) {
      expect(key, what, *value);
      return std::nullopt;
    }
    const double number = value->get<double>();
    if (!(number > 0) || !std::isfinite(number)) {
      expect(key, what, *value);
      return std::nullopt;
    }
    return number;
  }

  int positive_integer(const char* key) {
    const Json* value = member(key);
    if (!value) return 0;
    if (!value->is_number_integer() || value->get<std::int64_t>() <= 0 ||
        value->get<std::int64_t>() > 1'000'000'000) {
      expect(key, "an integer above 0", *value);
      return 0;
    }
    return value->get<int>();
  }

  std::vector<std::string> strings(const char* key) {
    std::vector<std::string> result;
    const Json* value = member(key);
    if (!value) return result;
    if (!value->is_array()) {
      expect(key, "a list of strings", *value);
      return result;
    }
    for (std::size_t i = 0; i < value->size(); ++i) {
      const Json& item = (*value)[i];
      if (!item.is_string()) {
        fail_at(pointer_ + "/" + key + "/" + std::to_string(i), "a string", found(item));
        return result;
      }
      result.push_back(item.get<std::string>());
    }
    return result;
  }

  /// nullptr where the key is missing (an error) or, if allowed, null.
  const Json* object(const char* key, bool null_allowed = false) {
    const Json* value = member(key);
    if (!value || (null_allowed && value->is_null())) return nullptr;
    if (!value->is_object()) {
      expect(key, null_allowed ? "an object or null" : "an object", *value);
      return nullptr;
    }
    return value;
  }

  void expect_value(const char* key, const Json& wanted) {
    const Json* value = member(key);
    if (value && *value != wanted) expect(key, wanted.dump(), *value);
  }

  void reject(const char* key, const std::string& wanted) { expect(key, wanted, object_[key]); }

  /// Call last: any key that nobody asked for is an error.
  void finish() {
    if (!object_.is_object()) return;
    for (const auto& [key, value] : object_.items()) {
      if (!known_.contains(key)) fail_at(pointer_ + "/" + key, "no such key", found(value));
    }
  }

 private:
  const Json* member(const char* key) {
    known_.insert(key);
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    if (it == object_.end()) {
      fail_at(pointer_ + "/" + key, "this key", "nothing");
      return nullptr;
    }
    return &*it;
  }

  void expect(const std::string& key, const std::string& wanted, const Json& value) {
    fail_at(pointer_ + "/" + key, wanted, found(value));
  }

  void fail_at(const std::string& pointer, const std::string& wanted, const std::string& what) {
    if (error_) return;
    error_ = Error{.code = ErrorCode::kFormat,
                   .message = "expected " + wanted + ", found " + what,
                   .json_pointer = pointer};
  }

  const Json& object_;
  std::string pointer_;
  std::optional<Error>& error_;
  std::set<std::string> known_;
};

constexpr double kMib = 1024.0 * 1024.0;

Gpu parse_gpu(const Json& document, std::optional<Error>& error) {
  Gpu gpu;
  ObjectReader root(document, "", error);
  root.expect_value("schema", "perfmodel-gpu");
  root.expect_value("version", 1);
  gpu.name = root.string("name");
  gpu.title = root.string("title");
  gpu.vendor = root.string("vendor");
  if (!error && gpu.vendor != "nvidia" && gpu.vendor != "amd") {
    root.reject("vendor", "\"nvidia\" or \"amd\"");
  }
  if (!error && gpu.name.empty()) root.reject("name", "a name");
  gpu.architecture = root.string("architecture");
  gpu.target = root.string("target");
  gpu.aliases = root.strings("aliases");
  gpu.num_sms = root.positive_integer("num_sms");
  gpu.base_clock_mhz = root.positive("base_clock_mhz", true);
  gpu.boost_clock_mhz = root.positive("boost_clock_mhz", true);

  if (const Json* peaks = root.object("peak_tflop_per_s")) {
    ObjectReader reader(*peaks, "/peak_tflop_per_s", error);
    Gpu::Peaks& p = gpu.peak_tflop_per_s;
    p.fp64 = reader.optional_positive("fp64");
    p.fp32 = reader.optional_positive("fp32", false);  // every model starts from it
    p.fp16 = reader.optional_positive("fp16");
    p.bf16 = reader.optional_positive("bf16");
    p.fp32_matrix = reader.optional_positive("fp32_matrix");
    p.tf32_matrix = reader.optional_positive("tf32_matrix");
    p.fp16_matrix = reader.optional_positive("fp16_matrix");
    p.bf16_matrix = reader.optional_positive("bf16_matrix");
    p.fp8_matrix = reader.optional_positive("fp8_matrix");
    p.int8_matrix = reader.optional_positive("int8_matrix_top_per_s");
    reader.finish();
  }
  if (const Json* dram = root.object("dram")) {
    ObjectReader reader(*dram, "/dram", error);
    gpu.dram_type = reader.string("type");
    gpu.dram_gb = reader.positive("size_gb");
    gpu.dram_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  gpu.l2_size = {root.positive("l2_mib") * kMib};
  gpu.last_level_cache_size = {root.positive("last_level_cache_mib", true) * kMib};
  gpu.shared_memory_per_sm = {root.positive("shared_memory_per_sm_kib") * 1024};
  gpu.max_threads_per_sm = root.positive_integer("max_threads_per_sm");
  gpu.warp_size = root.positive_integer("warp_size");
  if (const Json* pcie = root.object("pcie")) {
    ObjectReader reader(*pcie, "/pcie", error);
    gpu.pcie_generation = reader.positive_integer("generation");
    gpu.pcie_lanes = reader.positive_integer("lanes");
    gpu.pcie_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  if (const Json* link = root.object("link", true)) {
    ObjectReader reader(*link, "/link", error);
    gpu.link_type = reader.string("type");
    reader.positive("generation");
    gpu.link_count = reader.positive_integer("links");
    gpu.link_bandwidth = {reader.positive("bandwidth_gb_per_s") * 1e9};
    reader.finish();
  }
  gpu.tdp_w = root.positive("tdp_w", true);
  gpu.notes = root.string("notes");
  gpu.sources = root.strings("sources");
  root.finish();
  return gpu;
}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t change = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row[b.size()];
}

std::string nearest_names(std::string_view wanted, const std::vector<Gpu>& gpus) {
  std::vector<std::pair<std::size_t, std::string>> scored;
  for (const Gpu& gpu : gpus) {
    std::size_t best =
        std::min(edit_distance(wanted, gpu.name), edit_distance(wanted, lower(gpu.title)));
    for (const std::string& alias : gpu.aliases) {
      best = std::min(best, edit_distance(wanted, lower(alias)));
    }
    if (gpu.name.starts_with(wanted)) best = 0;  // "a100" means one of the a100 boards
    scored.emplace_back(best, gpu.name);
  }
  std::sort(scored.begin(), scored.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, scored.size()); ++i) {
    text += (i ? ", " : "") + scored[i].second;
  }
  return text;
}

/// Names of GPUs are single path components; anything else is a path.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name.find('/') == std::string_view::npos &&
         name.find('\\') == std::string_view::npos && name != "." && name != "..";
}

std::optional<double> first_of(std::initializer_list<std::optional<double>> candidates) {
  for (const auto& candidate : candidates) {
    if (candidate) return candidate;
  }
  return std::nullopt;
}

}  // namespace

FlopPerSecond Gpu::peak(DType dtype, bool matrix_units) const {
  const Peaks& p = peak_tflop_per_s;
  const double fp32 = p.fp32.value_or(0);
  // Half types without a vector rate, or with a token one, are computed in fp32. Hardware without a
  // published fp64 rate gets 1/32 of fp32, the usual ratio of consumer boards.
  double tflop_per_s = fp32;
  switch (dtype) {
    case DType::kFloat64:
    case DType::kComplex128:
      tflop_per_s = p.fp64.value_or(fp32 / 32);
      break;
    case DType::kFloat16:
      tflop_per_s =
          std::max(fp32, (matrix_units ? first_of({p.fp16_matrix, p.fp16}) : p.fp16).value_or(0));
      break;
    case DType::kBFloat16:
      tflop_per_s =
          std::max(fp32, (matrix_units ? first_of({p.bf16_matrix, p.bf16}) : p.bf16).value_or(0));
      break;
    case DType::kFloat8:
      if (matrix_units) {
        tflop_per_s = first_of({p.fp8_matrix, p.fp16_matrix, p.fp16}).value_or(fp32);
      }
      break;
    case DType::kInt8:
    case DType::kUInt8:
      if (matrix_units) tflop_per_s = p.int8_matrix.value_or(fp32);
      break;
    default:
      if (matrix_units) tflop_per_s = first_of({p.fp32_matrix, p.tf32_matrix}).value_or(fp32);
  }
  return {tflop_per_s * 1e12};
}

Result<Gpu> read_gpu(const fs::path& file) {
  std::error_code ignored;
  std::ifstream stream;
  if (!fs::is_directory(file, ignored)) stream.open(file, std::ios::binary);
  if (!stream.is_open()) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a readable GPU file, found none",
                            .file = file}};
  }
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  std::optional<Error> error;
  try {
    const Json document = Json::parse(text);
    Gpu gpu = parse_gpu(document, error);
    if (!error) return gpu;
  } catch (const Json::parse_error& e) {
    const std::size_t end = std::min(text.size(), e.byte > 0 ? e.byte - 1 : 0);
    const auto last_break = text.substr(0, end).rfind('\n');
    error = Error{.code = ErrorCode::kSyntax,
                  .message = "expected JSON, found something else here",
                  .line = 1 + static_cast<int>(std::count(text.begin(), text.begin() + end, '\n')),
                  .column = static_cast<int>(
                      end - (last_break == std::string::npos ? 0 : last_break + 1) + 1)};
  } catch (const std::exception& e) {
    error = Error{.code = ErrorCode::kFormat,
                  .message = std::string("expected a GPU file, found ") + e.what()};
  }
  error->file = file;
  return Unexpected{std::move(*error)};
}

Result<std::vector<Gpu>> read_gpus(const fs::path& folder) {
  std::error_code failure;
  std::vector<fs::path> files;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().extension() == ".json") files.push_back(it->path());
  }
  if (failure) {
    return Unexpected{Error{.code = ErrorCode::kIo,
                            .message = "expected a folder of GPU files, found " + failure.message(),
                            .file = folder}};
  }
  std::ranges::sort(files);

  std::vector<Gpu> gpus;
  std::map<std::string, std::string> owners;  // lower-case alias -> GPU
  for (const fs::path& file : files) {
    Result<Gpu> gpu = read_gpu(file);
    if (!gpu) return Unexpected{gpu.error()};
    if (gpu->name != file.stem().string()) {
      return Unexpected{Error{.message = "expected the name of the file, \"" +
                                         file.stem().string() + "\", found \"" + gpu->name + "\"",
                              .file = file,
                              .json_pointer = "/name"}};
    }
    for (std::size_t i = 0; i < gpu->aliases.size() + 2; ++i) {
      const bool is_alias = i < gpu->aliases.size();
      const std::string pointer = is_alias                   ? "/aliases/" + std::to_string(i)
                                  : i == gpu->aliases.size() ? "/name"
                                                             : "/title";
      const std::string& text = is_alias                   ? gpu->aliases[i]
                                : i == gpu->aliases.size() ? gpu->name
                                                           : gpu->title;
      const auto [owner, is_new] = owners.emplace(lower(text), gpu->name);
      if (!is_new && owner->second != gpu->name) {
        return Unexpected{Error{.message = "expected a name of one GPU only, found \"" + text +
                                           "\", which " + owner->second + " claims too",
                                .file = file,
                                .json_pointer = pointer}};
      }
    }
    gpus.push_back(std::move(*gpu));
  }
  std::ranges::sort(gpus, {}, &Gpu::name);
  return gpus;
}

Result<Gpu> find_gpu(std::string_view name, const fs::path& folder) {
  const std::string wanted = lower(name);
  std::error_code ignored;
  if (is_plain_name(wanted)) {
    const fs::path file = folder / (wanted + ".json");
    if (fs::is_regular_file(file, ignored)) return read_gpu(file);
  }
  const fs::path path{std::string(name)};
  if (fs::is_regular_file(path, ignored)) return read_gpu(path);
  if (path.extension() == ".json") return read_gpu(path);  // says that it cannot be opened

  Result<std::vector<Gpu>> gpus = read_gpus(folder);
  if (!gpus) return Unexpected{gpus.error()};
  for (Gpu& gpu : *gpus) {
    const bool matches =
        wanted == gpu.name || wanted == lower(gpu.title) ||
        std::ranges::any_of(gpu.aliases, [&](const auto& alias) { return lower(alias) == wanted; });
    if (matches) return std::move(gpu);
  }
  return fail(ErrorCode::kUnknownName, "expected the name of a known GPU or a file, found \"" +
                                           std::string(name) + "\"; the nearest known are " +
                                           nearest_names(wanted, *gpus));
}

}  // namespace perfmodel
