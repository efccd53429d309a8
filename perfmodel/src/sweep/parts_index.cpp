#include "parts_index.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "gzip_member.hpp"
#include "part_file.hpp"
#include "perfmodel/detail/output_file.hpp"
#include "sweep_row.hpp"

namespace perfmodel::sweep {
namespace fs = std::filesystem;
namespace {

constexpr std::uint64_t kWindow = 32768;  // rows in memory while merging

Result<std::vector<fs::path>> parts_of(const fs::path& folder) {
  std::vector<fs::path> parts;
  std::error_code failure;
  if (!fs::exists(folder, failure)) return parts;
  for (fs::directory_iterator it(folder, failure), end; !failure && it != end;
       it.increment(failure)) {
    if (it->path().filename().string().ends_with(".csv.gz")) parts.push_back(it->path());
  }
  if (failure) {
    return fail(ErrorCode::kIo, "expected a readable folder, found " + failure.message(), folder);
  }
  std::ranges::sort(parts);
  return parts;
}

// Calls visit(key, result cells) for each line "key,cells".
template <class Visit>
void each_row(std::string_view rows, Visit visit) {
  for (std::size_t begin = 0; begin < rows.size();) {
    std::size_t end = rows.find('\n', begin);
    if (end == std::string_view::npos) end = rows.size();
    const std::string_view line = rows.substr(begin, end - begin);
    const std::size_t comma = std::min(line.find(','), line.size());
    visit(line.substr(0, comma), line.substr(std::min(comma + 1, line.size())));
    begin = end + 1;
  }
}

void note_rows(std::string_view rows, std::uint64_t offset, const SweepPoints& points,
               PartsIndex& index) {
  PartsIndex::Member member{.part = index.parts.size() - 1, .offset = offset};
  bool any = false;
  each_row(rows, [&](std::string_view key, std::string_view) {
    const auto row = points.index_of(key);
    if (!row) {
      ++index.foreign;
      return;
    }
    member.first = any ? std::min(member.first, *row) : *row;
    member.last = any ? std::max(member.last, *row) : *row;
    any = true;
    if (index.finished[*row]) {
      ++index.repeated;
    } else {
      index.finished[*row] = true;
      ++index.rows;
    }
  });
  if (any) index.members.push_back(member);
}

// The rows [first, first + kWindow) from all members that have some of them.
class Window {
 public:
  Window(const PartsIndex& index, const SweepPoints& points)
      : index_(index), points_(points), waiting_(index.members) {
    std::ranges::sort(waiting_, std::ranges::greater{}, &PartsIndex::Member::first);
  }

  /// Windows are loaded in ascending order.
  Result<void> load(std::uint64_t first) {
    first_ = first;
    cells_.assign(std::min(kWindow, points_.count() - first), {});
    std::erase_if(active_, [&](const auto& member) { return member.last < first; });
    while (!waiting_.empty() && waiting_.back().first < first + cells_.size()) {
      active_.push_back(waiting_.back());
      waiting_.pop_back();
    }
    for (const PartsIndex::Member& member : active_) {
      PERFMODEL_TRY(rows, read(member));
      each_row(*rows, [&](std::string_view key, std::string_view cells) {
        const auto row = points_.index_of(key);
        if (!row || *row < first_ || *row >= first_ + cells_.size()) return;
        cells_[*row - first_] = cells;
      });
    }
    return {};
  }

  const std::vector<std::string>& cells() const { return cells_; }

 private:
  Result<std::string_view> read(const PartsIndex::Member& member) {
    const fs::path& file = index_.parts[member.part];
    auto reader = open_.find(member.part);
    if (reader == open_.end()) {
      PERFMODEL_TRY(opened, MemberReader::open(file));
      if (open_.size() >= kMostOpen) open_.clear();
      reader = open_.emplace(member.part, std::move(*opened)).first;
    }
    reader->second.seek(member.offset);
    PERFMODEL_TRY(text, reader->second.next());
    if (!*text) {
      return fail(ErrorCode::kIo,
                  "expected the rows that were there before, found the file "
                  "changed by somebody else",
                  file);
    }
    return **text;
  }

  static constexpr std::size_t kMostOpen = 64;

  const PartsIndex& index_;
  const SweepPoints& points_;
  std::uint64_t first_ = 0;
  std::vector<std::string> cells_;
  std::vector<PartsIndex::Member> waiting_, active_;  // the former by first row, descending
  std::map<std::size_t, MemberReader> open_;
};

}  // namespace

Result<PartsIndex> index_parts(const fs::path& folder, const SweepPoints& points,
                               std::string_view fingerprint) {
  PartsIndex index;
  index.finished.resize(points.count());
  PERFMODEL_TRY(parts, parts_of(folder));
  for (const fs::path& part : *parts) {
    index.parts.push_back(part);
    const auto size = read_part(part, fingerprint, [&](std::string_view rows, std::uint64_t at) {
      note_rows(rows, at, points, index);
      return Result<void>();
    });
    if (!size) return Unexpected{size.error()};
    index.torn_bytes += size->torn;
  }
  return index;
}

Result<void> merge_parts(const PartsIndex& index, const SweepPoints& points,
                         const fs::path& output) {
  PERFMODEL_CHECK(index.complete());
  PERFMODEL_TRY(out, OutputFile::create(output));
  out->write(fmt::format("{},{}\n", points.columns(), kResultColumns));
  Window window(index, points);
  for (std::uint64_t first = 0; first < points.count(); first += kWindow) {
    PERFMODEL_TRY_TO(window.load(first));
    std::uint64_t row = first;
    for (const std::string& cells : window.cells()) {
      out->write(points.cells(row++));
      out->write(",");
      out->write(cells);
      out->write("\n");
    }
  }
  return out->commit();
}

}  // namespace perfmodel::sweep
