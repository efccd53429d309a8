#include "perfmodel/sharding/detail/batch_time.hpp"

namespace perfmodel::sharding {

std::string_view to_string(BatchPart part) {
  switch (part) {
    case BatchPart::kIdExchange:
      return "id exchange";
    case BatchPart::kPrefetch:
      return "prefetch from host memory";
    case BatchPart::kLookupForward:
      return "lookup forward";
    case BatchPart::kVectorExchange:
      return "vector exchange";
    case BatchPart::kBottomForward:
      return "bottom MLP forward";
    case BatchPart::kTopForward:
      return "interaction and top MLP forward";
    case BatchPart::kTopBackward:
      return "interaction and top MLP backward";
    case BatchPart::kGradientExchange:
      return "gradient exchange";
    case BatchPart::kBottomBackward:
      return "bottom MLP backward";
    case BatchPart::kLookupBackward:
      return "lookup backward and update";
    case BatchPart::kAllReduce:
      return "all-reduce";
    case BatchPart::kDenseOptimizer:
      return "dense optimizer";
    case BatchPart::kCount:
      break;
  }
  return "";
}

}  // namespace perfmodel::sharding
