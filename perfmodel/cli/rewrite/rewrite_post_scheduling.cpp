#include <fmt/format.h>

#include "perfmodel/graph/rewrites/fusion.hpp"
#include "rewrite_flags.hpp"

namespace perfmodel::cli {

RewriteOption fuse_option() {
  return {.flag = "--fuse",
          .value = "post-scheduling",
          .help =
              "Pointwise ops on a GPU run in the kernel of the product, convolution, norm or "
              "reduction beside them, chains that are left as one kernel each, as Hidet fuses; "
              "comes behind rewrites of sizes and precision",
          .for_build = true,
          .parse = [](const std::string& text) -> Result<Rewrite> {
            if (text == "post-scheduling") return rewrite_post_scheduling_fusion;
            return fail(ErrorCode::kUnknownName,
                        fmt::format("expected post-scheduling, found {}", text));
          }};
}

}  // namespace perfmodel::cli
