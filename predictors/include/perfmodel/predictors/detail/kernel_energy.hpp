#pragma once

namespace perfmodel {

/// Energy of a kernel [J], without the board's idle power.
struct KernelEnergy {
  double flop_j = 0, dram_j = 0;
  bool measured = false;  ///< the energy of a FLOP comes from the architecture's measured products

  double sum_j() const { return flop_j + dram_j; }
};

}  // namespace perfmodel
