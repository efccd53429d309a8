#include "catalogue.hpp"

namespace perfmodel {
namespace {

using enum OpKind;
using enum AutocastPolicy;

constexpr Op kOps[] = {
    {"aten::_thnn_fused_lstm_cell",
     kRecurrent,
     {.price = "recurrent.fused_cell", .size = "lstm_cell", .autocast = kLower}},
    {"aten::_thnn_fused_lstm_cell_backward_impl",
     kRecurrent,
     {.price = "recurrent.fused_cell", .size = "lstm_cell_backward"}},
    {"aten::_thnn_fused_gru_cell",
     kRecurrent,
     {.price = "recurrent.fused_cell", .size = "gru_cell", .autocast = kLower}},
    {"aten::_thnn_fused_gru_cell_backward",
     kRecurrent,
     {.price = "recurrent.fused_cell", .size = "gru_cell_backward"}},
    {"aten::_cudnn_rnn",
     kRecurrent,
     {.price = "recurrent.rnn", .size = "recurrent", .autocast = kLower, .weights = {1, 3}}},
    {"aten::_cudnn_rnn_backward",
     kRecurrent,
     {.price = "recurrent.rnn", .size = "recurrent_backward"}},
    {"aten::miopen_rnn", kRecurrent, {.price = "recurrent.rnn", .autocast = kLower}},
    {"aten::miopen_rnn_backward", kRecurrent, {.price = "recurrent.rnn"}},
    {"aten::lstm",
     kComposite,
     {.size = "recurrent_layers",
      .weights = {2},
      .constants = {1, 3, 4, 5, 6, 7, 8, 9},
      .data = {0}}},
    {"aten::gru",
     kComposite,
     {.size = "recurrent_layers",
      .weights = {2},
      .constants = {1, 3, 4, 5, 6, 7, 8, 9},
      .data = {0}}},
    {"aten::rnn_tanh",
     kComposite,
     {.size = "recurrent_layers",
      .weights = {2},
      .constants = {1, 3, 4, 5, 6, 7, 8, 9},
      .data = {0}}},
    {"aten::rnn_relu",
     kComposite,
     {.size = "recurrent_layers",
      .weights = {2},
      .constants = {1, 3, 4, 5, 6, 7, 8, 9},
      .data = {0}}},
    {"aten::_thnn_fused_lstm_cell_backward", kComposite, {.size = "lstm_cell_backward"}},
    {"aten::lstm_cell",
     kComposite,
     {.autocast = kLower, .weights = {2, 3, 4, 5}, .constants = {1, 6, 7, 8, 9}}},
    {"aten::gru_cell",
     kComposite,
     {.autocast = kLower, .weights = {2, 3, 4, 5}, .constants = {1, 6, 7, 8, 9}}},
    {"aten::rnn_tanh_cell", kComposite, {.autocast = kLower}},
    {"aten::rnn_relu_cell", kComposite, {.autocast = kLower}},
};

}  // namespace

std::span<const Op> recurrent_ops() { return kOps; }

}  // namespace perfmodel
