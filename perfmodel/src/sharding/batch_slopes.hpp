#pragma once

#include "perfmodel/sharding/detail/batch_model.hpp"

namespace perfmodel::sharding {

/// Cost of one more byte or id, all else equal [us].
struct BatchModel::Slopes {
  double all_to_all = 0, ids = 0, reduce_scatter = 0, all_gather = 0, all_reduce = 0;
  double host_sum = 0, host_sum_gradient = 0;
  double bag_us = 0, l2 = 0, dram = 0, link = 0, id_us = 0;
};

}  // namespace perfmodel::sharding
