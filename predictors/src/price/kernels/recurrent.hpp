#pragma once

#include <memory>

#include "perfmodel/predictors/kernel.hpp"

/// The constants of recurrent layers (`recurrent.cpp` has the equation), apart from the model, so
/// that tests can try constants chosen without a GPU on that GPU.
namespace perfmodel::kernels {

/// One step of a layer, as library calls of 2016-2018 run it.
struct RecurrentStep {
  double peak_share = 1;        ///< e
  double cell_cycles = 0;       ///< f of an LSTM, per step
  double gru_cycles = 0;        ///< f of a GRU
  double depth_cycles = 0;      ///< d: per element of the summed axis
  double odd_batch_cycles = 0;  ///< d on Pascal at batches of 17 to 32
  double memory_share = 1;      ///< share of the memory's rate at which the weights are read
  double plain_cycles = 0;      ///< f of a plain layer: none, libraries of then fuse its tanh
};

struct RecurrentConstants {
  RecurrentStep forward, backward_data;     ///< NVIDIA's
  RecurrentStep forward_amd, backward_amd;  ///< the backward pass of data and weights together
  double weight_gradient_share = 1;         ///< share of the peak
  double weight_gradient_cycles = 0;        ///< per call
  double weight_gradient_step_cycles = 0;
};

std::unique_ptr<KernelModel> make_recurrent_model(const RecurrentConstants& constants);

}  // namespace perfmodel::kernels
