#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "made_campaign.hpp"

/// A made-up campaign of one GPU in the tables that `kernels_bench` writes: every family that
/// models exist for, by laws of sizes and data sheet that differ from our heuristic.
namespace perfmodel::test_support {

/// Time of a kernel that moves `bytes` [us]: 1.7 us and the bandwidth meet without a corner, and
/// small kernels see less of it.
inline double move_us(const Gpu& gpu, double bytes, double share = 0.9) {
  const double stream = bytes / (share * gpu.dram_bandwidth.value * 1e-6);
  return std::pow(std::pow(1.7, 1.5) + std::pow(stream + 0.3 * std::sqrt(stream), 1.5), 1 / 1.5);
}

/// Products in tiles of 128 x 128, whole waves of one tile per SM.
inline double tiles_us(const Gpu& gpu, double batch, double m, double n, double k, double peak) {
  const double tiles = batch * std::ceil(m / 128) * std::ceil(n / 128);
  const double waves = std::ceil(tiles / gpu.num_sms);
  return 2.5 + waves * (2 * 128 * 128 * k / (0.8 * peak * 1e-6 / gpu.num_sms) + 0.4);
}

class MadeKernels {
 public:
  explicit MadeKernels(std::string gpu, unsigned seed = 1, double noise = 0.01)
      : name_(std::move(gpu)), gpu_(gpu_of_data(name_)), draw_(seed), noise_{.noise = noise} {}

  /// A table of `count` rows of each of its kernels: gemm, bmm, embedding, memory, vector,
  /// convolution.
  std::string table(const std::string& which, int count) {
    const Maker& maker = makers().at(which);
    std::string text = "# made up\n# timing: graph replay, no launch cost\n" + maker.head + "\n";
    for (int i = 0; i < count; ++i) (this->*maker.rows)(text);
    return text;
  }

 private:
  struct Maker {
    std::string head;
    void (MadeKernels::*rows)(std::string&);
  };
  static const std::map<std::string, Maker>& makers() {
    static const std::map<std::string, Maker> all = {
        {"gemm", {"gpu,op,dtype,layout,m,n,k,time_us,p10_us,l2_warm", &MadeKernels::gemms}},
        {"bmm", {"gpu,op,dtype,layout,b,m,n,k,time_us,l2_warm", &MadeKernels::bmms}},
        {"embedding",
         {"gpu,op,dtype,optimizer,tables,rows,batch,pooling,dim,zipf,time_us,gb_per_s",
          &MadeKernels::embeddings}},
        {"memory",
         {"gpu,op,copy_kind,pinned,bytes,row_bytes,time_us,gb_per_s", &MadeKernels::copies}},
        {"vector",
         {"gpu,op,dtype,direction,rows,cols,b,batch,features,table_rows,strided,n_inputs,time_us,"
          "l2_warm",
          &MadeKernels::vectors}},
        {"convolution",
         {"gpu,op,dtype,direction,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,time_us",
          &MadeKernels::convolutions}},
    };
    return all;
  }

  template <class... Cells>
  void row(std::string& text, double kernel_us, const std::string& rest, const Cells&... cells) {
    text += name_;
    ((text += ',', text += shown(cells)), ...);
    text += ',' + cell(draw_.measured(noise_, kernel_us)) + rest + '\n';
  }
  static std::string shown(std::int64_t value) { return std::to_string(value); }
  static std::string shown(double value) { return cell(value); }
  static std::string shown(const std::string& value) { return value; }
  static std::string shown(const char* value) { return value; }

  std::int64_t size(double low_log2, double high_log2) { return draw_.size(low_log2, high_log2); }
  std::int64_t power(int low, int high) {
    return std::int64_t{1} << (low + static_cast<int>(draw_.uniform() * (high - low + 1)));
  }
  bool coin() { return draw_.uniform() < 0.5; }

  struct Type {
    const char* name;
    double bytes, peak;
  };
  std::vector<Type> product_types() const {
    return {{"fp32", 4, gpu_.peak(DType::kFloat32, false).value},
            {"tf32", 4, gpu_.peak(DType::kFloat32, true).value},
            {"bf16", 2, gpu_.peak(DType::kBFloat16, true).value},
            {"fp16", 2, gpu_.peak(DType::kFloat16, true).value}};
  }

  void gemms(std::string& text) {
    for (const Type& type : product_types()) {
      const std::int64_t m = power(6, 13), n = power(6, 12), k = power(6, 12);
      const char* layout = coin() ? "tn" : "nn";
      const double time = std::max(tiles_us(gpu_, 1, dbl(m), dbl(n), dbl(k), type.peak),
                                   move_us(gpu_, type.bytes * dbl(m * k + k * n + m * n)));
      row(text, time, ",0,0", coin() ? "gemm" : "linear", type.name, layout, m, n, k);
    }
    // Operands in L2 on purpose: never fitted.
    row(text, 1, ",0,1", "gemm", "fp32", "nn", power(6, 13), power(6, 12), power(6, 12));
  }
  void bmms(std::string& text) {
    const Type type = product_types()[2];
    const std::int64_t b = power(2, 9), m = power(4, 9), n = power(4, 9), k = power(4, 8);
    const double time = std::max(tiles_us(gpu_, dbl(b), dbl(m), dbl(n), dbl(k), type.peak),
                                 move_us(gpu_, type.bytes * dbl(b * (m * k + k * n + m * n))));
    row(text, time, ",0", "bmm", type.name, "nn", b, m, n, k);
  }

  void embeddings(std::string& text) {
    for (const bool half : {false, true}) {
      for (const bool backward : {false, true}) {
        const std::int64_t tables = power(0, 4), rows = size(12, 22), batch = power(9, 13),
                           pooling = power(0, 5), dim = power(4, 8);
        const double zipf = coin() ? 0 : 1.05;
        const bool adagrad = backward && coin();
        const double lookups = dbl(tables * batch * pooling);
        const double row_bytes = dbl(dim) * (half ? 2 : 4);
        const double table_bytes = dbl(tables * rows) * row_bytes;
        const double hits = gpu_.l2_size.value / (gpu_.l2_size.value + table_bytes);
        const double missed = lookups * row_bytes * (1 - hits) * (zipf > 0 ? 0.5 : 1);
        const double bags = dbl(tables * batch) * dbl(dim) * 4;
        double time = move_us(gpu_, missed + bags + 0.2 * lookups * row_bytes, 0.75);
        if (backward) time = 2.5 * time + (adagrad ? 1e-4 * lookups : 0);
        row(text, time, ",0", backward ? "embedding_backward" : "embedding_forward",
            half ? "fp16" : "fp32", backward ? (adagrad ? "rowwise_adagrad" : "sgd") : "", tables,
            rows, batch, pooling, dim, zipf);
      }
    }
  }

  void copies(std::string& text) {
    const double pcie = gpu_.pcie_bandwidth.value * 1e-6;
    for (const char* kind : {"h2d", "d2h"}) {
      for (const bool pinned : {false, true}) {
        const std::int64_t bytes = size(10, 28);
        row(text, 1.2 + dbl(bytes) / (pcie * (pinned ? 0.85 : 0.3)), ",0", "memcpy", kind,
            pinned ? 1.0 : 0.0, bytes, "");
      }
    }
    std::int64_t bytes = size(10, 29);
    row(text, move_us(gpu_, 2 * dbl(bytes), 0.8), ",0", "memcpy", "d2d", "", bytes, "");
    bytes = size(10, 29);
    row(text, move_us(gpu_, dbl(bytes), 0.95), ",0", "memset", "", "", bytes, "");
    const std::int64_t run = power(4, 10);
    const std::int64_t runs = size(6, 18);
    const double wasted = std::max(1.0, 64 / dbl(run));
    row(text, move_us(gpu_, dbl(runs * run) * (1 + wasted), 0.7), ",0", "strided_copy", "", "",
        runs * run, run);
  }

  void vector(std::string& text, double us, const char* op, const char* type, const char* direction,
              const std::string& rows, const std::string& cols, const std::string& rest) {
    row(text, us, ",0", op, type, direction, rows, cols, rest);
  }
  void vectors(std::string& text) {
    const auto no_sizes = [](std::int64_t rows, std::int64_t cols) {
      return std::pair(std::to_string(rows), std::to_string(cols));
    };
    for (const char* type : {"fp32", "bf16"}) {
      const double s = std::string(type) == "fp32" ? 4 : 2;
      for (const char* op : {"relu", "gelu", "add", "elementwise"}) {
        const auto [rows, cols] = no_sizes(size(4, 14), power(5, 12));
        const double n = std::stod(rows) * std::stod(cols);
        const bool three = std::string(op) == "elementwise";
        const double tensors = three ? 4 : std::string(op) == "add" ? 3 : 2;
        vector(text, move_us(gpu_, tensors * n * s), op, type, "", rows, cols,
               three ? ",,,,,3" : ",,,,,");
      }
      for (const char* op : {"sum", "max"}) {
        const bool strided = coin();
        const std::int64_t rows = power(3, 12), cols = power(5, 14);
        const double few = 1 + 6.0 / std::sqrt(dbl(rows));
        const double time = move_us(gpu_, dbl(rows * cols) * s * few, strided ? 0.4 : 0.85) + 1;
        vector(text, time, op, type, "", shown(rows), shown(cols), strided ? ",,,,1," : ",,,,0,");
      }
      for (const char* op : {"softmax", "layer_norm", "batch_norm"}) {
        for (const char* direction : {"fwd", "bwd"}) {
          const bool back = std::string(direction) == "bwd";
          const bool batch_norm = std::string(op) == "batch_norm";
          const std::int64_t rows = batch_norm ? power(5, 10) : power(5, 16);
          const std::int64_t cols = batch_norm ? power(10, 16) : power(6, 12);
          const double passes = (back ? 3 : 2) + (batch_norm ? 1.2 : 0);
          vector(text, move_us(gpu_, passes * dbl(rows * cols) * s, 0.7), op, type, direction,
                 shown(rows), shown(cols), ",,,,,");
        }
      }
      for (const char* direction : {"fwd", "bwd"}) {
        const std::int64_t rows = size(4, 14), cols = power(5, 12);
        vector(text, move_us(gpu_, dbl(rows * cols) * (2 * s + 1), 0.6), "dropout", type, direction,
               shown(rows), shown(cols), ",,,,,");
        const std::int64_t batch = power(7, 14), features = size(3, 6.3);
        const double pairs = dbl(features * (features - 1) / 2);
        const double back = std::string(direction) == "bwd" ? dbl(features * features) : pairs;
        row(text, move_us(gpu_, dbl(batch) * s * (pairs + back), 0.45), ",0", "tril", type,
            direction, "", "", "", batch, features, ",,");
      }
      const std::int64_t b = power(0, 6), rows = power(4, 10), cols = power(4, 10);
      row(text,
          move_us(gpu_, 2 * s * dbl(b * rows * cols) * (1 + 16 / dbl(std::min(rows, cols))), 0.7),
          ",0", "transpose", type, "", rows, cols, b, ",,,,");
      const std::int64_t joined = size(4, 16), width = power(4, 10);
      vector(text, move_us(gpu_, 2 * s * dbl(joined * width), 0.65), "concat", type, "",
             shown(joined), shown(width), ",,,,,");
      for (const char* op : {"gather", "scatter_add"}) {
        const bool adds = std::string(op) == "scatter_add";
        const std::int64_t found = size(6, 18), wide = power(3, 9), table = size(10, 22);
        const double in_l2 = gpu_.l2_size.value / (gpu_.l2_size.value + dbl(table * wide) * s);
        const double time = move_us(
            gpu_, dbl(found * wide) * s * (adds ? 3 : 2) * (1 - 0.5 * in_l2) + 32 * dbl(found),
            0.6);
        vector(text, time, op, type, "", shown(found), shown(wide), ",,," + shown(table) + ",,");
      }
    }
  }

  void convolutions(std::string& text) {
    const auto types = product_types();
    for (std::size_t i = 1; i < 4; ++i) {
      for (const char* direction : {"fwd", "dgrad", "wgrad"}) {
        const std::int64_t n = power(3, 6), c = power(4, 9), k = power(4, 9),
                           h = 7 << (power(0, 3) > 2 ? 2 : 1), filter = coin() ? 1 : 3,
                           pad = filter / 2;
        const double flop_k = dbl(c * filter * filter);
        double time = tiles_us(gpu_, 1, dbl(n * h * h), dbl(k), flop_k, types[i].peak);
        if (direction[0] == 'w') time *= 1.4;
        row(text, time, "", "conv2d", types[i].name, direction, n, c, h, h, k, filter, filter, pad,
            pad, 1.0, 1.0);
      }
    }
  }

  static double dbl(std::int64_t value) { return static_cast<double>(value); }

  std::string name_;
  Gpu gpu_;
  Draw draw_;
  Campaign noise_;
};

inline const std::vector<std::string>& made_tables() {
  static const std::vector<std::string> names = {"gemm",   "bmm",    "embedding",
                                                 "memory", "vector", "convolution"};
  return names;
}

}  // namespace perfmodel::test_support
