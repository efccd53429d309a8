#include "machine_trouble.hpp"

namespace perfmodel {

void scale_links(double link_share, double network_share, Topology& topology) {
  const auto slow = [](double share, auto&... rates) { ((rates.value *= share), ...); };
  Topology::Intra& intra = topology.intra;
  slow(link_share, intra.gpu_bandwidth, intra.channel_bandwidth, intra.p2p_bandwidth,
       intra.all_to_all_bandwidth);
  for (Topology::Curve& curve : topology.curves) slow(link_share, curve.bus);
  for (Topology::GroupCurve& of : topology.group_curves) {
    slow(of.nodes > 1 ? network_share : link_share, of.curve.bus);
  }
  if (topology.nccl) {
    Topology::NcclTimes& nccl = *topology.nccl;
    slow(link_share, nccl.low_rate, nccl.all_to_all.low_rate);
    for (Topology::NcclTimes::Rates& of : nccl.rates) {
      slow(link_share, of.all_reduce, of.all_gather, of.reduce_scatter, of.all_to_all);
    }
  }
  if (topology.nic) slow(network_share, topology.nic->bandwidth, topology.nic->in_flight);
}

void scale_products(double factor, ShardCosts& costs) {
  for (PartCosts* part : {&costs.embedding, &costs.layer, &costs.head, &costs.loss}) {
    for (PassCosts* pass : {&part->forward, &part->backward, &part->again}) {
      const double more = (factor - 1) * (pass->product_us + pass->attention_us);
      for (double PassCosts::*sum :
           {&PassCosts::kernel_us, &PassCosts::low_us, &PassCosts::high_us}) {
        pass->*sum += more;
      }
      pass->product_us *= factor;
      pass->attention_us *= factor;
    }
  }
}

void overlap_nothing(Framework& framework) {
  framework.overlap_gradients = framework.overlaps_gathers = false;
  framework.tensor_overlap = framework.expert_overlap = 0;
}

}  // namespace perfmodel
