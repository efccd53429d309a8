#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "perfmodel/graph/execution_graph.hpp"
#include "perfmodel/graph/rewrite.hpp"
#include "rewrite_invariants.hpp"

namespace perfmodel::test_support {

/// How the FLOP of matrix products and convolutions change.
enum class Products : std::uint8_t { kSame, kTwice, kNotLess, kNotMore, kOther };

/// The effect of a second application of the same rewrite.
enum class Again : std::uint8_t { kNothing, kIsRefused, kMore };

/// The promises of some rewrites, with the reasons.
struct RewriteContract {
  std::vector<std::string> rewrites;  ///< as the command line says them: "--batch 6"
  Products products;
  const char* why_products;
  Again again;
  const char* why_again;
  bool keeps_parameters = true;  ///< the count of numbers that get a gradient
  bool is_whole = true;          ///< else ops are taken out, and their results come from outside
  bool leaves_unread_reruns_out = false;  ///< reruns of checkpoints go if nothing reads their
                                          ///< results
};

/// At least one rewrite for every flag of `perfpredict rewrite`.
const std::vector<RewriteContract>& rewrite_contracts();

/// One value of a rewrite, with the contract that it has to keep.
struct ContractedRewrite {
  NamedRewrite rewrite;
  const RewriteContract* contract = nullptr;
};

/// All of them, in the order of the contracts.
const std::vector<ContractedRewrite>& contracted_rewrites();

/// The structure is whole, and every tensor that is read has a maker, as far as the contract says.
Violation broken_invariant(const ContractedRewrite& rewrite, const ExecutionGraph& source,
                           const ExecutionGraph& result);

/// Products and parameters are kept as the contract says: for graphs that a program could have.
Violation broken_work(const ContractedRewrite& rewrite, const ExecutionGraph& source,
                      const ExecutionGraph& result);

/// A second application does what the contract says.
Violation broken_second_application(const ContractedRewrite& rewrite, const ExecutionGraph& result);

}  // namespace perfmodel::test_support
