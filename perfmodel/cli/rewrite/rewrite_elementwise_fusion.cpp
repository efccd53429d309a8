#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {

RewriteOption fuse_elementwise_option() {
  return {
      .flag = "--fuse-elementwise",
      .help =
          "Neighbouring pointwise ops on a GPU run as one kernel each, as torch.compile makes "
          "them; comes behind rewrites of sizes and precision",
      .for_build = true,
      .parse = [](const std::string&) -> Result<Rewrite> { return rewrite_elementwise_fusion; }};
}

}  // namespace perfmodel::cli
