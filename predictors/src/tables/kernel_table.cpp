#include "kernel_table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "base/plain_text.hpp"
#include "files/lower_case.hpp"
#include "names.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "price/kernel_work.hpp"
#include "row_cells.hpp"
#include "row_work.hpp"

namespace perfmodel {
namespace table {
namespace {

using enum Column;

/// Most ids are short and of letters and digits, which needs no look at UTF-8.
bool is_plain(std::string_view text) {
  const auto is_common = [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return std::ranges::all_of(text, is_common) || is_plain_text(text);
}

/// "# timing: graph replay, no launch cost"
bool says_no_launch_cost(std::string_view comment) {
  const std::string text = lower_case(comment);
  const std::size_t key = text.find_first_not_of("# \t");
  return key != text.npos && text.compare(key, 7, "timing:") == 0 &&
         text.find("no launch cost", key) != text.npos;
}

/// Meanings of cells' words, kept because names repeat from row to row.
template <class Meaning>
class Words {
 public:
  const Meaning* find(std::string_view word) {
    const std::size_t last_letter = word.empty() ? 0 : static_cast<unsigned char>(word.back());
    const auto*& recent = recent_[(5 * word.size() + last_letter) % recent_.size()];
    if (recent && recent->first.size() == word.size() &&
        std::memcmp(recent->first.data(), word.data(), word.size()) == 0) {
      return &recent->second;
    }
    const auto found = meanings_.find(word);
    recent = found == meanings_.end() ? nullptr : &*found;
    return recent ? &recent->second : nullptr;
  }
  void add(std::string_view word, Meaning meaning) { meanings_.emplace(word, meaning); }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const {
      return std::hash<std::string_view>()(word);
    }
  };
  std::unordered_map<std::string, Meaning, Hash, std::equal_to<>> meanings_;
  // By length and last letter: most rows repeat a word of the last rows.
  std::array<const std::pair<const std::string, Meaning>*, 64> recent_{};
};

class TableReader {
 public:
  TableReader(CsvFile file, KernelTableOptions options)
      : cells_(std::move(file)), options_(std::move(options)) {}

  /// Reads the header and applies the options.
  Result<void> begin() {
    table_.file = csv().path();
    table_.has_launch_cost = std::ranges::none_of(csv().head(), says_no_launch_cost);
    is_graph_table_ = has(kGraph) && has(kNodeIndex) && has(kStage) && has(kRepeat);
    PERFMODEL_TRY_TO(resolve_options());
    if (options_.needs_time && !has(kTime) && !has(kTimeMs)) {
      return Unexpected{csv().missing_column("time_us", " with measured times")};
    }
    return {};
  }

  /// The rows that the file has; those before the error, if there is one.
  std::optional<Error> read_rows() {
    while (cells_.next()) {
      read_row();
      if (cells_.error()) {
        table_.rows.pop_back();
        return cells_.error();
      }
    }
    if (csv().error()) return csv().error();
    for (const FusedGroup& group : fused_) merge(group);
    return std::nullopt;
  }

  std::optional<Error> read_block(CsvBlock& block) {
    cells_.go_on(block);
    rows_before_ = block.rows_before;
    table_.rows.clear();
    return read_rows();
  }

  Result<KernelTable> read() {
    PERFMODEL_TRY_TO(begin());
    if (auto error = read_rows()) return Unexpected{std::move(*error)};
    if (table_.rows.empty()) {
      return fail(ErrorCode::kFormat, "expected rows, found only a header", csv().path());
    }
    return std::move(table_);
  }

  KernelTable& table() { return table_; }
  bool is_graph_table() const { return is_graph_table_; }

 private:
  const CsvFile& csv() const { return cells_.csv(); }
  bool has(Column column) const { return cells_.has(column); }
  bool given(Column column) const { return cells_.given(column); }
  std::string_view text(Column column) const { return cells_.text(column); }

  struct FusedGroup {
    std::size_t first = 0;
    std::vector<std::size_t> rows;
    std::optional<double> in_elements, out_elements;
    double element_size = 4;
  };

  Result<void> resolve_options() {
    if (!options_.gpu.empty()) {
      PERFMODEL_TRY(gpu, find_gpu(options_.gpu, options_.gpu_folder));
      table_.gpus.push_back(std::move(*gpu));
      gpu_ = 0;
      if (has(kDevice)) {
        table_.warnings.push_back(
            "all rows are taken for " + table_.gpus[0].name + ": the column " +
            std::string(csv().column("device") >= 0 ? "device" : "gpu") + " is not read");
      }
    }
    if (!options_.op.empty()) {
      if (!table::find_op(options_.op)) {
        return fail(ErrorCode::kUnknownName,
                    "expected " + a_known_op(options_.op) + ", found \"" + options_.op + "\"");
      }
    }
    if (!options_.dtype.empty()) {
      option_type_ = table::find_type(options_.dtype);
      if (!option_type_) {
        return fail(ErrorCode::kUnknownName, "expected " + a_known_type(options_.dtype) +
                                                 ", found \"" + options_.dtype + "\"");
      }
    }
    return {};
  }

  void read_row() {
    const std::uint64_t number = rows_before_ + table_.rows.size() + 1;
    KernelRow& row = table_.rows.emplace_back();
    row.line = csv().line();
    if (given(kId)) {
      row.id = text(kId);
      if (!is_plain(row.id)) cells_.reject(kId, "one line of plain text");
    } else {
      const fmt::format_int digits(number);
      row.id.assign(digits.data(), digits.size());
    }
    find_op(row);
    if (cells_.error()) return;
    row.gpu = find_row_gpu();
    type_ = find_type();
    if (cells_.error()) return;
    read_time(row);
    row.is_llm_shape = text(kShapeSet) == "llm";
    row.paper_train = text(kPaperTrain) == "1";
    row.is_l2_warm = cells_.flag(kWarm);
    if (is_graph_table_) read_node(row);
    read_row_work(cells_,
                  {.op = *op_spec_,
                   .type = *type_,
                   .gpu = row.gpu < 0 ? nullptr : &table_.gpus[row.gpu],
                   .is_graph_table = is_graph_table_,
                   .stage = row.stage},
                  row.work);
    if (row.work.family == KernelFamily::kCollective) {
      row.transfer_bytes = row.work.bytes_read.value;
      if (given(kNodes) || given(kNics) || given(kNicRate) || given(kNetwork)) {
        row.network = row_network(cells_);
      }
    }
    if (is_graph_table_ && !cells_.error()) note_fused(row);
  }

  void find_op(KernelRow& row) {
    std::string_view name = text(kOp);
    if (name.empty()) name = options_.op;
    if (name.empty()) {
      const auto all = [this](std::initializer_list<Column> needed) {
        return std::ranges::all_of(needed, [this](Column column) { return given(column); });
      };
      if (all({kM, kN, kK})) {
        name = "gemm";
      } else if (all({kC, kH, kW, kR, kS}) || all({kChannelsIn, kChannelsOut, kImage})) {
        name = "conv2d";
      } else if (all({kCell})) {
        name = "rnn";
      } else if (has(kOp)) {
        return cells_.reject(kOp, "an op");
      } else {
        return cells_.missing_column(
            "op",
            ", or columns that tell (m, n, k: gemm; c, h, w, r, s: conv2d; cell: rnn), or --op");
      }
    }
    const KnownOp* op = ops_.find(name);
    if (!op) {
      const OpSpec* spec = table::find_op(name);
      if (!spec) return cells_.reject_unknown(kOp, a_known_op(name));
      const auto known = std::ranges::find(table_.ops, spec->name);
      ops_.add(name, {spec, static_cast<int>(known - table_.ops.begin())});
      if (known == table_.ops.end()) table_.ops.emplace_back(spec->name);
      op = ops_.find(name);
    }
    op_spec_ = op->spec;
    cells_.set_op(op_spec_->name);
    row.op = op->number;
  }

  int find_row_gpu() {
    if (gpu_ >= 0) return gpu_;
    const std::string_view name = text(kDevice);
    if (name.empty()) return -1;
    if (const int* known = gpus_.find(name)) return *known;
    auto gpu = find_known_gpu(name, options_.gpu_folder);
    if (!gpu) {
      cells_.reject_gpu(gpu.error());
      return -1;
    }
    const auto same = std::ranges::find(table_.gpus, gpu->name, &Gpu::name);
    const int index = static_cast<int>(same - table_.gpus.begin());
    if (same == table_.gpus.end()) table_.gpus.push_back(std::move(*gpu));
    gpus_.add(name, index);
    return index;
  }

  const TypeSpec* find_type() {
    const std::string_view name = text(kType);
    if (name.empty()) {
      if (option_type_) return option_type_;
      switch (op_spec_->kind) {
        case OpKind::kMove:
        case OpKind::kCopy:
        case OpKind::kStridedCopy:
        case OpKind::kSet:
        case OpKind::kCollective: return &default_type();  // bytes only
        default: break;
      }
      if (is_graph_table_) {
        if (!warned_type_) {
          table_.warnings.push_back(
              "no column names the dtype: operator graphs count 4 bytes per element, so fp32 is "
              "taken");
          warned_type_ = true;
        }
        return &default_type();
      }
      if (has(kType)) {
        cells_.reject(kType, "a dtype (or --dtype)");
      } else {
        cells_.missing_column("dtype", " (or precision, or --dtype)");
      }
      return nullptr;
    }
    if (const auto* known = types_.find(name)) return *known;
    const TypeSpec* spec = table::find_type(name);
    if (!spec) {
      cells_.reject_unknown(kType, a_known_type(name));
      return nullptr;
    }
    types_.add(name, spec);
    return spec;
  }

  void read_time(KernelRow& row) {
    const Column column = given(kTime) || !has(kTimeMs) ? kTime : kTimeMs;
    if (given(column)) {
      row.measured_us = cells_.positive(column) * (column == kTimeMs ? 1e3 : 1);
    } else if (options_.needs_time) {
      cells_.reject(column, "a number above 0");
    }
  }

  void read_node(KernelRow& row) {
    if (!given(kGraph)) return cells_.reject(kGraph, "the name of a graph");
    if (table_.graphs.empty() || table_.graphs[graph_] != text(kGraph)) {
      const auto known = std::ranges::find(table_.graphs, text(kGraph));
      graph_ = static_cast<int>(known - table_.graphs.begin());
      if (known == table_.graphs.end()) table_.graphs.emplace_back(text(kGraph));
    }
    row.graph = graph_;
    row.node_index = static_cast<int>(cells_.size_or_zero(kNodeIndex));
    row.stage = text(kStage);
    if (row.stage != "fw" && row.stage != "bw" && row.stage != "acc") {
      cells_.reject_unknown(kStage, "fw, bw or acc");
    }
    row.repeat = cells_.positive(kRepeat);
  }

  void note_fused(KernelRow& row) {
    if (!cells_.flag(kFused) || cells_.error()) return;
    const auto key = std::tuple(row.graph, row.node_index, row.stage);
    auto [found, is_new] = fused_of_.emplace(key, fused_.size());
    if (is_new) fused_.emplace_back().first = table_.rows.size() - 1;
    FusedGroup& group = fused_[found->second];
    group.rows.push_back(table_.rows.size() - 1);
    group.element_size = size_in_bytes(type_->storage);
    // Every row of a node repeats what the whole node reads and writes.
    if (given(kInElements)) group.in_elements = cells_.at_least_zero(kInElements);
    if (given(kOutElements)) group.out_elements = cells_.positive(kOutElements);
    row.fused_group = static_cast<int>(found->second) + 1;
    row.is_free = !is_new;
  }

  /// One kernel does all listed ops, reads `in_elems` and writes `out_elems`. It is of the class of
  /// its GEMM, else of its last op.
  void merge(const FusedGroup& group) {
    const KernelWork* leader = nullptr;
    KernelWork sum;
    for (const std::size_t index : group.rows) {
      const KernelWork& part = table_.rows[index].work;
      sum.flop += part.flop;
      sum.bytes_read += part.bytes_read;
      sum.bytes_written += part.bytes_written;
      const bool is_gemm = part.family == KernelFamily::kGemm;
      if (!leader || is_gemm || leader->family != KernelFamily::kGemm) leader = &part;
    }
    KernelWork merged = *leader;
    merged.flop = sum.flop;
    merged.bytes_read =
        group.in_elements ? Bytes{group.element_size * *group.in_elements} : sum.bytes_read;
    merged.bytes_written =
        group.out_elements ? Bytes{group.element_size * *group.out_elements} : sum.bytes_written;
    for (const std::size_t index : group.rows) table_.rows[index].work = KernelWork{};
    table_.rows[group.first].work = merged;
  }

  RowCells cells_;
  KernelTableOptions options_;
  KernelTable table_;
  std::uint64_t rows_before_ = 0;
  bool is_graph_table_ = false, warned_type_ = false;
  const TypeSpec* option_type_ = nullptr;

  struct KnownOp {
    const OpSpec* spec;
    int number;  // in `KernelTable::ops`
  };
  Words<KnownOp> ops_;
  Words<int> gpus_;
  Words<const TypeSpec*> types_;
  const OpSpec* op_spec_ = nullptr;  // the current row's
  const TypeSpec* type_ = nullptr;
  int gpu_ = -1, graph_ = 0;
  std::map<std::tuple<int, int, std::string>, std::size_t> fused_of_;
  std::vector<FusedGroup> fused_;
};

}  // namespace
}  // namespace table

namespace {
constexpr std::size_t kRowsPerBlock = 4096;  // 2 MB as rows, as prices and as text together
}  // namespace

KernelWork for_gpu(KernelWork work, const Gpu& gpu) {
  const bool multiplies =
      work.family == KernelFamily::kGemm || work.family == KernelFamily::kConvolution ||
      work.family == KernelFamily::kAttention || work.family == KernelFamily::kGroupedGemm ||
      work.family == KernelFamily::kExperts || work.family == KernelFamily::kLinearAttention;
  const bool is_tf32 = work.dtype == DType::kFloat32 && work.matrix_units;  // asked for by the row
  if (multiplies && !is_tf32) work.matrix_units = gemm_uses_matrix_units(work.dtype, gpu);
  return work;
}

namespace {

/// The tables of a campaign's folder, sorted; `peaks` holds no kernels.
Result<void> add_tables_of(const std::filesystem::path& folder,
                           std::vector<std::filesystem::path>& files) {
  std::set<std::string> found;
  std::error_code failure;
  for (std::filesystem::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    const std::string name = it->path().filename().string();
    const bool is_table = name.ends_with(".csv") || name.ends_with(".csv.gz");
    if (!is_table || name.substr(0, name.find('.')) == "peaks") continue;
    if (found.contains(name + ".gz") ||
        (name.ends_with(".gz") && found.contains(name.substr(0, name.size() - 3)))) {
      return decline("expected each table once, found .csv and .csv.gz", it->path());
    }
    found.insert(name);
  }
  if (failure || found.empty()) {
    return fail(ErrorCode::kIo,
                "expected tables of kernels (.csv, .csv.gz), found " +
                    (failure ? failure.message() : std::string("none")),
                folder);
  }
  for (const std::string& name : found) files.push_back(folder / name);
  return {};
}

}  // namespace

Result<KernelTable> read_kernel_table(const std::filesystem::path& file,
                                      const KernelTableOptions& options) {
  PERFMODEL_TRY(csv, CsvFile::open(file));
  return table::TableReader(std::move(*csv), options).read();
}

Result<std::vector<KernelTable>> read_kernel_tables(const std::vector<std::string>& paths,
                                                    const KernelTableOptions& options) {
  std::vector<std::filesystem::path> files;
  for (const std::string& path : paths) {
    std::error_code ignored;
    if (!std::filesystem::is_directory(path, ignored)) {
      files.push_back(path);
    } else if (auto added = add_tables_of(path, files); !added) {
      return Unexpected{added.error()};
    }
  }
  std::vector<KernelTable> tables;
  for (const std::filesystem::path& file : files) {
    PERFMODEL_TRY(table, read_kernel_table(file, options));
    tables.push_back(std::move(*table));
  }
  return tables;
}

struct KernelTableBlocks::Reader::State {
  explicit State(table::TableReader the_reader) : reader(std::move(the_reader)) {}

  table::TableReader reader;
};

KernelTableBlocks::Reader::Reader(std::unique_ptr<State> state) : state_(std::move(state)) {}
KernelTableBlocks::Reader::Reader(Reader&&) noexcept = default;
KernelTableBlocks::Reader& KernelTableBlocks::Reader::operator=(Reader&&) noexcept = default;
KernelTableBlocks::Reader::~Reader() = default;

std::optional<Error> KernelTableBlocks::Reader::read(CsvBlock& block) {
  return state_->reader.read_block(block);
}

KernelTable& KernelTableBlocks::Reader::table() { return state_->reader.table(); }

KernelTableBlocks::KernelTableBlocks(CsvBlocks blocks, KernelTableOptions options)
    : blocks_(std::move(blocks)), options_(std::move(options)), rows_per_block_(kRowsPerBlock) {}

Result<KernelTableBlocks> KernelTableBlocks::open(const std::filesystem::path& file,
                                                  const KernelTableOptions& options) {
  PERFMODEL_TRY(csv, CsvBlocks::open(file));
  KernelTableBlocks blocks(std::move(*csv), options);
  PERFMODEL_TRY(reader, blocks.reader());
  if (reader->state_->reader.is_graph_table()) {
    blocks.rows_per_block_ = std::numeric_limits<std::size_t>::max();
  }
  return blocks;
}

Result<bool> KernelTableBlocks::next(CsvBlock& block) {
  return blocks_.next(rows_per_block_, block);
}

Result<KernelTableBlocks::Reader> KernelTableBlocks::reader() const {
  PERFMODEL_TRY(header, blocks_.header());
  auto state = std::make_unique<Reader::State>(table::TableReader(std::move(*header), options_));
  PERFMODEL_TRY_TO(state->reader.begin());
  return Reader(std::move(state));
}

}  // namespace perfmodel
