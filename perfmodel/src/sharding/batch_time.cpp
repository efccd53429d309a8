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
                                                "dense optimizer",
                                                "permutation of ids",
                                                "joining of vectors",
                                                "interaction forward",
                                                "interaction backward",
                                                "first all-reduces",
                                                "splitting of gradients",
                                                "all-reduce of tables",
                                                "sizes of ids",
                                                "the host"};
  return enum_name(kNames, part);
}

}  // namespace perfmodel::sharding
