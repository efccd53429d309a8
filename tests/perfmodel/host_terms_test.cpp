#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>

#include "../scratch.hpp"
#include "overheads/pool_overheads.hpp"
#include "overheads/term_samples.hpp"
#include "perfmodel/prediction.hpp"
#include "tiny_run.hpp"

namespace perfmodel {
namespace host_terms_test {

using test_support::exactly;

constexpr std::uint64_t kContext = 77;
const std::uint64_t kName = hash_text("op");

double place(const HostTerm& host) { return static_cast<double>(host.term) + 1; }

// Each term has figures of its own: T1 1, 101 and 201 us, T2 2, 102 and 202 us, ...
OverheadTable table_of_all_terms() {
  OverheadTable table{.gpu = "G"};
  table.ops["op"] = exactly(10, 4);
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) {
      table.t4["cudaLaunchKernel"] = exactly(place(host), 4);
      continue;
    }
    OverheadTerm& term = table.*host.figures;
    term.all = exactly(place(host), 4);
    term.by_name[kName] = {"op", exactly(100 + place(host), 4)};
    term.by_context[kContext] = exactly(200 + place(host), 4);
    term.name_of_context[kContext] = kName;
  }
  return table;
}

void expect_figures(const OverheadTable& table, const HostTerm& host, double factor) {
  SCOPED_TRACE(host.name);
  if (!host.figures) {
    EXPECT_DOUBLE_EQ(table.call_us("cudaLaunchKernel").us, factor * place(host));
    return;
  }
  const OverheadTerm& term = table.*host.figures;
  ASSERT_TRUE(term.by_name.contains(kName));
  ASSERT_TRUE(term.by_context.contains(kContext));
  EXPECT_DOUBLE_EQ(term.all.mean_us, factor * place(host));
  EXPECT_DOUBLE_EQ(term.by_name.at(kName).stats.mean_us, factor * (100 + place(host)));
  EXPECT_DOUBLE_EQ(term.by_context.at(kContext).mean_us, factor * (200 + place(host)));
}

TEST(HostTerms, HaveNamesOfTheirOwn) {
  std::set<std::string_view> names, keys, meanings;
  for (const HostTerm& host : kHostTerms) {
    EXPECT_EQ(to_string(host.term), host.name);
    EXPECT_FALSE(host.meaning.empty()) << host.name;
    names.insert(host.name);
    keys.insert(host.key);
    meanings.insert(host.meaning);
  }
  EXPECT_EQ(names.size(), std::size(kHostTerms));
  EXPECT_EQ(keys.size(), std::size(kHostTerms));
  EXPECT_EQ(meanings.size(), std::size(kHostTerms));
}

TEST(HostTerms, HaveFiguresOfTheirOwn) {
  const OverheadTable table = table_of_all_terms();
  for (const HostTerm& host : kHostTerms) expect_figures(table, host, 1);
}

TEST(HostTerms, AreWrittenAndRead) {
  const auto file = test_support::scratch() / "host_terms_test.json";
  ASSERT_TRUE(write_overheads(table_of_all_terms(), file));
  const auto table = read_overheads(file);
  std::filesystem::remove(file);
  ASSERT_TRUE(table) << to_string(table.error());
  for (const HostTerm& host : kHostTerms) expect_figures(*table, host, 1);
}

TEST(HostTerms, AreBroughtToAnotherHost) {
  OverheadTable table = table_of_all_terms();
  scale_host(table, 2);
  for (const HostTerm& host : kHostTerms) expect_figures(table, host, 2);
}

TEST(HostTerms, ArePooled) {
  const OverheadTable table = table_of_all_terms();
  const PoolMember members[] = {{"alone", &table}};
  const auto pooled = pool_overheads(members);
  ASSERT_TRUE(pooled) << to_string(pooled.error());
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) continue;
    const OverheadTerm& term = (*pooled).*host.figures;
    EXPECT_EQ(term.all.count, 4U) << host.name;
    EXPECT_NEAR(term.by_name.at(kName).stats.mean_us, 100 + place(host), 1e-9) << host.name;
    EXPECT_NEAR(term.by_context.at(kContext).mean_us, 200 + place(host), 1e-9) << host.name;
  }
}

TEST(HostTerms, SamplesOfOneAreNotThoseOfAnother) {
  HostSamples samples;
  for (const HostTerm& host : kHostTerms) samples[host.term].add(place(host), "op");
  OverheadTable table;
  samples.give(table, &TermSamples::term);
  for (const HostTerm& host : kHostTerms) {
    if (!host.figures) continue;
    EXPECT_DOUBLE_EQ((table.*host.figures).all.mean_us, place(host)) << host.name;
  }
}

}  // namespace host_terms_test
}  // namespace perfmodel
