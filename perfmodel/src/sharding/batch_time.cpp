#include "perfmodel/sharding/detail/batch_time.hpp"

#include "base/enum_name.hpp"

namespace perfmodel::sharding {

std::string_view to_string(BatchPart part) {
  static constexpr std::string_view kNames[] = {"id exchange",
                                                "prefetch from host memory",
                                                "lookup forward",
                                                "vector exchange",
                                                "bottom MLP forward",
                                                "interaction and top MLP forward",
                                                "interaction and top MLP backward",
                                                "gradient exchange",
                                                "bottom MLP backward",
                                                "lookup backward and update",
                                                "all-reduce",
                                                "dense optimizer"};
  return enum_name(kNames, part);
}

}  // namespace perfmodel::sharding
