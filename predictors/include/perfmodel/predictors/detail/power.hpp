#pragma once

#include "perfmodel/predictors/detail/board_power.hpp"
#include "perfmodel/predictors/detail/kernel_energy.hpp"
#include "perfmodel/predictors/gpu.hpp"
#include "perfmodel/predictors/kernel.hpp"

/// Energy of kernels, and prices under a board's power limit (docs/kernel_models.md).
///
///   E = e_FLOP FLOP + e_byte bytes                 of a kernel, without the board's idle power
///   P = P_idle + sum E / T <= P_limit              mean over some tens of milliseconds
///
/// e_FLOP: energy of one FLOP by type [J], of a dense product, operands included; e_byte: of a byte
/// that comes from or goes to DRAM [J], of no more bytes than DRAM delivers in the kernel's time;
/// P_limit: `Gpu::tdp_w`; P_idle: a share of it. Single kernels of up to some milliseconds run on
/// stored energy: prices of kernels are such bursts.
///
/// Measured on GB200 alone, with bf16 products (public silicon tables, gemm_sustained).
namespace perfmodel {

/// Energy of a FLOP of a kernel [pJ]: as measured for the architecture's products if the kernel may
/// use matrix units, else `derived_picojoule_per_flop`.
double picojoule_per_flop(const KernelWork& work, const Gpu& gpu);

/// Energy of a kernel that takes `time`. Zero on a GPU without a limit.
KernelEnergy kernel_energy(const KernelWork& work, const Gpu& gpu, Microseconds time);

/// The price of a kernel that runs again and again: no faster than its energy allows, if that was
/// measured; estimated energies bound only the rates inside prices. `low` stays the burst's.
/// Measured times stay.
Price sustained(const Price& burst, const KernelWork& work, const Gpu& gpu);

/// The price of a kernel that runs alone some tens of times, as benchmarks do: kernels of up to 0.5
/// ms end before the board's regulator acts, from 1.5 ms on it holds them to the limit, linear
/// between (`matrix_gemm` prices products so).
Price sustained_alone(const Price& burst, const KernelWork& work, const Gpu& gpu);

}  // namespace perfmodel
