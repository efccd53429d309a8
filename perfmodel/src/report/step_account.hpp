#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "analyze/step_facts.hpp"
#include "perfmodel/result.hpp"

namespace perfmodel::report_page {

/// The parts of a step, as AccountRow::part names them.
inline constexpr std::array<std::string_view, 4> kStepParts = {"compute", "exposed communication",
                                                               "exposed copies", "device idle"};
inline constexpr std::size_t kIdlePart = 3;

/// A part of a step's time. All times are in microseconds per step.
struct AccountRow {
  std::string part;    ///< one of kStepParts
  std::string family;  ///< this and `kernel` are empty while the device is idle
  std::string kernel;
  std::string op;     ///< the innermost op that launches the kernel or that the host is in
  std::string label;  ///< the module or label around it
  double count = 0;   ///< kernels
  double us = 0;
};

/// The time of a step, divided so that each moment belongs to one row, or in equal shares to the
/// kernels that run at once. Compute hides collectives, both hide copies; while none runs, the
/// moment belongs to the host's innermost op. So the rows add up to the step.
struct StepAccount {
  std::string name;
  double step_us = 0;
  std::vector<AccountRow> rows;
};

/// `facts`: steps of `step_us` each; a prediction's work that ends after its pass overlaps with the
/// next.
StepAccount account_of(const findings::StepFacts& facts, double step_us);

/// Whether the file is a list of a step's kernels as kernels_bench/pytorch/collect.py writes it:
/// NAME.kernels.json.gz next to NAME.times.json.gz.
bool is_kernel_list(const std::filesystem::path& file);

/// The account of a kernel list: mean time of each kernel, the step's median time on the device,
/// and the rest as device idle. It knows neither ops nor labels. Errors: one of the files lacks or
/// is of another form.
Result<StepAccount> account_of_kernel_list(const std::filesystem::path& file);

enum class AccountKey : std::uint8_t { kPart, kFamily, kKernel, kOp, kLabel };

/// A row of two accounts.
struct AccountChange {
  std::string name;
  double before_us = 0, after_us = 0;
  double count_before = 0, count_after = 0;
  double change_us() const { return after_us - before_us; }
};

/// Both accounts by one key, the largest change first. The changes add up to the change of the
/// step. Empty: one of the accounts does not know the key.
std::vector<AccountChange> compare_accounts(const StepAccount& before, const StepAccount& after,
                                            AccountKey key);

}  // namespace perfmodel::report_page
