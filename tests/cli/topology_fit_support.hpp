// Logs of nccl-tests as `perfpredict topology fit` reads them, made of sizes and times.
#pragma once

#include <cmath>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "program.hpp"

namespace perfmodel::test_support::topology_fit_test {

struct Size {
  double bytes = 0, us = 0;
};

constexpr double kMib = 1 << 20;

inline std::string devices(int ranks, int nodes) {
  std::string text = "# nThread 1 nGpus 1 minBytes 8 step: 2(factor)\n# Using devices\n";
  for (int rank = 0; rank < ranks; ++rank) {
    text += "#  Rank " + std::to_string(rank) + " Group  0 Pid 77 on  host-" +
            std::to_string(rank * nodes / ranks) + " device 0 [0x07] NVIDIA H100 80GB HBM3\n";
  }
  return text + "#       size  count  type  redop  root  time  algbw  busbw #wrong\n";
}

/// One row as nccl-tests prints it, twice as long in place.
inline std::string row(const Size& size, double factor) {
  char text[200];
  const double algorithm = size.bytes / size.us * 1e-3;
  std::snprintf(text, sizeof text,
                "%12.0f %12.0f float sum -1 %.2f %.2f %.2f 0 %.2f %.2f %.2f N/A\n", size.bytes,
                size.bytes / 4, size.us, algorithm, algorithm * factor, 2 * size.us, algorithm / 2,
                algorithm / 2 * factor);
  return text;
}

/// A row of an old version's all-to-all: neither operation nor root, nothing in place.
inline std::string old_row(const Size& size, double factor) {
  char text[200];
  const double algorithm = size.bytes / size.us * 1e-3;
  std::snprintf(text, sizeof text, "%.0f %.0f float %.2f %.2f %.2f 0e+00 N/A N/A N/A N/A\n",
                size.bytes, size.bytes / 4, size.us, algorithm, algorithm * factor);
  return text;
}

/// The log of a program of nccl-tests; `factor`: busbw by algbw.
inline std::string log_of(const std::string& program, const std::vector<Size>& sizes, int ranks,
                          int nodes, double factor) {
  std::string text = "mpirun -np 16 ./build/" + program + " -b 8 -e 8G -f 2 -g 1\n";
  text += devices(ranks, nodes);
  for (const Size& size : sizes) text += row(size, factor);
  return text + "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 44.5\n";
}

inline std::string all_reduce_log(const std::vector<Size>& sizes, int ranks, int nodes) {
  return log_of("all_reduce_perf", sizes, ranks, nodes, 2.0 * (ranks - 1) / ranks);
}

/// Without the report's line breaks.
inline std::string on_one_line(const std::string& text) {
  std::istringstream in(text);
  std::string line;
  for (std::string word; in >> word;) line += word + " ";
  return line;
}

inline const Words kH100 = {"--gpu", "h100-sxm-80gb"};

inline Outcome fit(const std::string& log, const Words& more = kH100) {
  return run(with({"topology", "fit", written("fit.log", log)}, more));
}

inline Json collective(const std::vector<Size>& sizes, const Words& words,
                       const std::string& op = "all_reduce") {
  Words all = {"collective", op};
  for (const Size& size : sizes) all.push_back(std::to_string(static_cast<long>(size.bytes)));
  return json_of(with(all, words))["sizes"];
}

/// A machine of HGX H100, whose times are off by up to 4 % in a fixed pattern.
inline std::vector<Size> sizes_of(int world, const std::function<double(const Json&)>& us,
                                  const std::string& op = "all_reduce") {
  const Json rows = json_of({"collective", op, "1KiB:8GiB", "--gpu", "h100-sxm-80gb", "--world",
                             std::to_string(world)})["sizes"];
  std::vector<Size> sizes;
  for (const Json& row : rows) {
    const double off = 0.04 * std::sin(2.4 * static_cast<double>(sizes.size()));
    sizes.push_back({row["bytes"], us(row) * (1 + off)});
  }
  return sizes;
}

inline double wire_longer(const Json& row, double factor) {
  return row["latency_us"].get<double>() + row["wire_us"].get<double>() * factor;
}

// A line by hand: 20 us, then 100 GB/s of bus bandwidth between 8 GPUs of one node.
inline std::vector<Size> line_sizes(double factor = 1.75, double gb_per_s = 100) {
  std::vector<Size> sizes;
  for (double bytes = 1024; bytes <= 1024 * kMib; bytes *= 4) {
    sizes.push_back({bytes, 20 + bytes * factor / gb_per_s * 1e-3});
  }
  return sizes;
}

}  // namespace perfmodel::test_support::topology_fit_test
