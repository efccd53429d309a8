#include "tables/kernel_table.hpp"
#include "../scratch.hpp"

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>

namespace perfmodel {
namespace kernel_table_test {

namespace fs = std::filesystem;

const fs::path kGpus = fs::path(PERFMODEL_SOURCE_DIR) / "data" / "gpus";

class KernelTables : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path write(const std::string& text) {
    const fs::path file = folder_ / "table.csv";
    std::ofstream(file, std::ios::binary) << text;
    return file;
  }

  KernelTable table(const std::string& text, KernelTableOptions options = {}) {
    options.gpu_folder = kGpus;
    auto read = read_kernel_table(write(text), options);
    EXPECT_TRUE(read.has_value()) << to_string(read.error());
    return read ? *read : KernelTable{};
  }
  KernelRow row(const std::string& text, const KernelTableOptions& options = {}) {
    const KernelTable read = table(text, options);
    EXPECT_EQ(read.rows.size(), 1u);
    return read.rows.empty() ? KernelRow{} : read.rows[0];
  }

  // The error without the folder: "table.csv:2:1: column: expected ...".
  std::string error(const std::string& text, KernelTableOptions options = {}) {
    options.gpu_folder = kGpus;
    const auto read = read_kernel_table(write(text), options);
    if (read) return "no error";
    const std::string message = to_string(read.error());
    const std::size_t at = message.find("table.csv");
    return at == std::string::npos ? message : message.substr(at);
  }

  fs::path folder_ = test_support::scratch() / "kernel_table";
};

template <class Shape>
Shape shape_of(const KernelRow& row) {
  const Shape* shape = std::get_if<Shape>(&row.work.shape);
  EXPECT_NE(shape, nullptr);
  return shape ? *shape : Shape{};
}

// ---- formats -----------------------------------------------------------------------------------

TEST_F(KernelTables, ReadsNeuSightGemms) {
  const KernelTable read = table(
      "device,op,dtype,layout,shape_set,paper_train,b,m,n,k,time_us,kernel\n"
      "A100-PCIE-40GB,bmm,fp32,nn,train,1,6,27,390,21,35.787,ampere_sgemm\n"
      "P4,linear,fp32,tn,llm,0,1,8,58,13,54.5,sgemm\n");
  ASSERT_EQ(read.rows.size(), 2u);
  EXPECT_EQ(read.ops, (std::vector<std::string>{"bmm", "linear"}));
  ASSERT_EQ(read.gpus.size(), 2u);
  EXPECT_EQ(read.gpus[0].name, "a100-pcie-40gb");
  const KernelRow& bmm = read.rows[0];
  EXPECT_EQ(bmm.id, "1");
  EXPECT_EQ(bmm.line, 2);
  EXPECT_DOUBLE_EQ(bmm.measured_us, 35.787);
  EXPECT_TRUE(bmm.paper_train);
  EXPECT_FALSE(bmm.is_llm_shape);
  EXPECT_FALSE(bmm.work.matrix_units);  // fp32 on NVIDIA: no TF32
  EXPECT_DOUBLE_EQ(bmm.work.flop.value, 2.0 * 6 * 27 * 390 * 21);
  const auto product = shape_of<GemmShape>(bmm);
  EXPECT_EQ(product.batch, 6);
  EXPECT_EQ(product.m, 27);
  EXPECT_EQ(product.n, 390);
  EXPECT_EQ(product.k, 21);
  EXPECT_FALSE(product.a_transposed || product.b_transposed || product.has_bias);
  const KernelRow& linear = read.rows[1];
  EXPECT_TRUE(linear.is_llm_shape);
  EXPECT_EQ(read.gpus[static_cast<std::size_t>(linear.gpu)].name, "p4");
  EXPECT_TRUE(shape_of<GemmShape>(linear).b_transposed);
  EXPECT_FALSE(shape_of<GemmShape>(linear).a_transposed);
  EXPECT_TRUE(shape_of<GemmShape>(linear).has_bias);
  EXPECT_DOUBLE_EQ(linear.work.bytes().value, 4.0 * (8 * 13 + 13 * 58 + 58 + 8 * 58));
}

TEST_F(KernelTables, AFolderIsItsTablesWithoutPeaks) {
  const std::string text = "op,dtype,m,n,k,device,time_us\ngemm,fp32,64,64,64,v100-sxm2-32gb,9\n";
  write(text);
  std::ofstream(folder_ / "peaks.csv") << "no table of kernels\n";
  std::ofstream(folder_ / "more.csv") << text << "gemm,fp32,64,64,128,v100-sxm2-32gb,12\n";
  const KernelTableOptions options{.gpu_folder = kGpus, .needs_time = true};
  const auto tables = read_kernel_tables({folder_.string()}, options);
  ASSERT_TRUE(tables) << to_string(tables.error());
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ((*tables)[0].rows.size(), 2u) << "more.csv comes before table.csv";
  std::ofstream(folder_ / "more.csv.gz") << text;
  const auto twice = read_kernel_tables({folder_.string()}, options);
  ASSERT_FALSE(twice);
  EXPECT_EQ(twice.error().message, "expected each table once, found .csv and .csv.gz");
}

TEST_F(KernelTables, ColumnMajorProductsChangeSides) {
  // C(35 x 8457) = A^T(35 x 1760) B(1760 x 8457), column-major: our rows are its columns.
  const auto shape =
      shape_of<GemmShape>(row("device,precision,m,n,k,trans_a,trans_b,time_us\n"
                              "titanx_maxwell,fp32,35,8457,1760,T,N,270\n"));
  EXPECT_EQ(shape.m, 8457);
  EXPECT_EQ(shape.n, 35);
  EXPECT_EQ(shape.k, 1760);
  EXPECT_TRUE(shape.b_transposed);
  EXPECT_FALSE(shape.a_transposed);
}

TEST_F(KernelTables, MatrixUnitsFollowTypeAndGpu) {
  const std::string head = "device,dtype,m,n,k\n";
  EXPECT_TRUE(row(head + "V100,fp16,64,64,64\n").work.matrix_units);
  EXPECT_FALSE(row(head + "V100,fp32,64,64,64\n").work.matrix_units);
  EXPECT_TRUE(row(head + "A100-PCIE-40GB,tf32,64,64,64\n").work.matrix_units);
  EXPECT_TRUE(row(head + "MI100,fp32,64,64,64\n").work.matrix_units);  // exact fp32 units
  EXPECT_TRUE(row(head + "H20,fp8,64,64,64\n").work.matrix_units);
  // Two-byte tensors, fp32 arithmetic.
  const KernelRow pseudo = row(head + "p100,pseudo_fp16,64,64,64\n");
  EXPECT_FALSE(pseudo.work.matrix_units);
  EXPECT_EQ(pseudo.work.dtype, DType::kFloat32);
  EXPECT_DOUBLE_EQ(pseudo.work.bytes().value, 2.0 * 3 * 64 * 64);
}

TEST_F(KernelTables, ARowWithoutAGpuTakesTheUnitsOfTheOneItMeets) {
  const KernelRow query = row("m,n,k,dtype\n64,64,64,fp32\n");
  EXPECT_EQ(query.gpu, -1);
  EXPECT_FALSE(query.work.matrix_units);
  EXPECT_TRUE(for_gpu(query.work, *find_gpu("mi100", kGpus)).matrix_units);
  EXPECT_FALSE(for_gpu(query.work, *find_gpu("t4", kGpus)).matrix_units);
}

TEST_F(KernelTables, ReadsVectorKernels) {
  const KernelTable read = table(
      "device,op,dtype,shape_set,paper_train,rows,cols,n_inputs,time_us,grid_blocks\n"
      "T4,add,fp32,train,0,127,168,2,26.8,42\n"
      "T4,mulu,fp32,train,0,10,20,1,26.8,42\n"
      "T4,ln,fp32,train,0,60,272,1,46.9,60\n"
      "T4,softmax,fp32,train,0,60,272,1,46.9,60\n");
  ASSERT_EQ(read.rows.size(), 4u);
  EXPECT_DOUBLE_EQ(read.rows[0].work.bytes().value, 4.0 * 127 * 168 * 3);
  EXPECT_DOUBLE_EQ(read.rows[1].work.bytes().value, 4.0 * 10 * 20 * 2);
  EXPECT_EQ(read.rows[2].work.family, KernelFamily::kNorm);
  EXPECT_EQ(read.rows[3].work.family, KernelFamily::kSoftmax);
  EXPECT_EQ(shape_of<RowShape>(read.rows[3]).cols, 272);
}

TEST_F(KernelTables, RowsMayTakeTurnsBetweenNames) {
  std::string text = "device,op,dtype,rows,cols\n";
  for (int i = 0; i < 9; ++i) {
    text += (i % 2 ? "T4,gelu,fp32,8,16\n" : "A100-PCIE-40GB,relu,fp32,8,16\n");
  }
  const KernelTable read = table(text + "L4,tanh,fp32,8,16\n");
  ASSERT_EQ(read.rows.size(), 10u);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(read.rows[i].op, static_cast<int>(i % 2)) << i;
    EXPECT_EQ(read.gpus[read.rows[i].gpu].name, i % 2 ? "t4" : "a100-pcie-40gb");
  }
  EXPECT_EQ(read.gpus[read.rows[9].gpu].name, "l4");
}

TEST_F(KernelTables, ReadsConvolutionsOfBothKinds) {
  const auto square = shape_of<ConvolutionShape>(
      row("device,op,dtype,batch,c_in,c_out,ksize,hw,stride,pad,time_us\n"
          "T4,conv2d,fp32,38,893,326,3,5,1,1,1069.92\n"));
  EXPECT_EQ(square.c, 893);
  EXPECT_EQ(square.k, 326);
  EXPECT_EQ(square.p, 5);
  const KernelRow deep =
      row("device,precision,direction,n,c,h,w,k,r,s,pad_h,pad_w,stride_h,stride_w,time_us\n"
          "mi25,fp32,wgrad,4,1,161,700,32,5,20,0,0,2,2,296\n");
  const auto shape = shape_of<ConvolutionShape>(deep);
  EXPECT_EQ(shape.pass, ConvolutionShape::Pass::kWeightGradient);
  EXPECT_EQ(shape.p, (161 - 5) / 2 + 1);
  EXPECT_EQ(shape.q, (700 - 20) / 2 + 1);
  EXPECT_DOUBLE_EQ(deep.work.flop.value, 2.0 * 4 * 32 * shape.p * shape.q * 5 * 20);
}

TEST_F(KernelTables, ReadsRecurrentLayers) {
  const KernelRow layer =
      row("device,precision,cell,direction,hidden,batch,timesteps,time_us\n"
          "p100,fp32,gru,bwd_data,512,32,10,346\n");
  const auto shape = shape_of<RecurrentShape>(layer);
  EXPECT_EQ(shape.cell, RecurrentShape::Cell::kGru);
  EXPECT_EQ(shape.pass, RecurrentShape::Pass::kBackwardData);
  EXPECT_DOUBLE_EQ(layer.work.flop.value, 2.0 * 3 * 512 * 512 * 32 * 10);
}

TEST_F(KernelTables, ReadsEmbeddingBags) {
  const std::string values = "fp16,100000,128,4,20\n";
  const auto totals =
      shape_of<EmbeddingShape>(row("op,bags_total,dtype,rows,dim,tables,pooling\n"
                                   "tbe_forward,4096," +
                                       values,
                                   {.gpu = "t4"}));
  EXPECT_EQ(totals.batch, 1024);
  EXPECT_EQ(totals.num_tables, 4);
  EXPECT_EQ(totals.weight_bytes, 2);
  const auto own =
      shape_of<EmbeddingShape>(row("op,batch,dtype,num_rows,dim,num_tables,pooling_factor\n"
                                   "embedding_bag,1024," +
                                       values,
                                   {.gpu = "t4"}));
  EXPECT_EQ(own.batch, 1024);
  EXPECT_DOUBLE_EQ(own.pooling_factor, 20);
}

TEST_F(KernelTables, FusedRowsAreOneKernelCarriedByTheFirst) {
  const KernelTable read = table(
      "graph,node_idx,node,kind,stage,fused,repeat,op,b,m,n,k,rows,cols,in_elems,out_elems,bytes\n"
      "g,1,a,fused,fw,1,3,divu,,,,,16,8,130,128,\n"
      "g,1,a,fused,fw,1,3,softmax,,,,,16,8,130,128,\n"
      "g,2,b,x,fw,1,1,add,,,,,8,8,70,64,\n"
      "g,2,b,x,fw,1,1,linear,1,8,8,4,,,70,64,\n"
      "g,3,c,x,bw,0,1,mul,,,,,2,64,256,64,\n"
      "g,4,d,x,fw,0,1,mem,,,,,,,,,12\n"
      "g,5,e,allreduce,fw,0,1,allreduce,,,,,,,,,4096\n");
  ASSERT_EQ(read.rows.size(), 7u);
  EXPECT_EQ(read.graphs, std::vector<std::string>{"g"});
  EXPECT_EQ(read.rows[0].work.family, KernelFamily::kSoftmax);  // the last op's class
  EXPECT_DOUBLE_EQ(read.rows[0].work.bytes_read.value, 4.0 * 130);
  EXPECT_DOUBLE_EQ(read.rows[0].work.bytes_written.value, 4.0 * 128);
  EXPECT_GT(read.rows[0].work.flop.value, 128);
  EXPECT_DOUBLE_EQ(read.rows[0].repeat, 3);
  EXPECT_FALSE(read.rows[0].is_free);
  EXPECT_TRUE(read.rows[1].is_free);
  EXPECT_EQ(read.rows[1].fused_group, read.rows[0].fused_group);
  EXPECT_NE(read.rows[2].fused_group, read.rows[0].fused_group);
  EXPECT_EQ(read.rows[2].work.family, KernelFamily::kGemm);  // a GEMM leads
  EXPECT_EQ(shape_of<GemmShape>(read.rows[2]).k, 4);
  // 4 (in + out) / out bytes per element of the kernel's own.
  EXPECT_DOUBLE_EQ(read.rows[4].work.bytes().value, 4.0 * 5 * 128);
  EXPECT_DOUBLE_EQ(read.rows[5].work.bytes().value, 12);
  EXPECT_EQ(read.rows[5].work.family, KernelFamily::kElementwise);
  EXPECT_DOUBLE_EQ(read.rows[6].transfer_bytes, 4096);
  EXPECT_EQ(shape_of<CollectiveShape>(read.rows[6]).kind, "all_reduce");
  EXPECT_EQ(read.warnings.size(), 1u);  // fp32 is taken
}

TEST_F(KernelTables, ReadsWhatOurOwnTablesHold) {
  const KernelTable read = table(
      "# device: literal\n"
      "id,op,rows,cols,batch,features,elements,bytes,copy_kind,heads,seq,head_dim,optimizer,b\n"
      "\"a,\"\"b\"\"\",reduction,4,8,,,,,,,,,,\n"
      "t,transpose,4,8,,,,,,,,,,2\n"
      "\n"
      "i,tril,,,16,27,,,,,,,,\r\n"
      "o,optimizer,,,,,1000,,,,,,adam,\n"
      "c,memcpy,,,,,,4096,h2d,,,,,\n"
      "f,attention,,,2,,,,,4,128,64,,\n",
      {.gpu = "t4", .dtype = "fp32"});
  ASSERT_EQ(read.rows.size(), 6u);
  EXPECT_EQ(read.rows[0].id, "a,\"b\"");
  EXPECT_EQ(read.rows[0].line, 3);
  EXPECT_EQ(read.rows[2].line, 6);
  EXPECT_EQ(read.rows[2].work.family, KernelFamily::kInteraction);
  EXPECT_DOUBLE_EQ(read.rows[3].work.bytes().value, 4.0 * 7 * 1000);
  EXPECT_EQ(shape_of<CopyShape>(read.rows[4]).kind, CopyKind::kHostToDevice);
  EXPECT_EQ(shape_of<AttentionShape>(read.rows[5]).seq_k, 128);
}

TEST_F(KernelTables, HeadsOfKeysAreSharedByGroupsOfQueries) {
  const KernelTable read = table(
      "op,dtype,batch,heads,kv_heads,seq,head_dim,causal\n"
      "attention,bf16,2,8,2,128,64,1\n"
      "attention,bf16,2,8,,128,64,1\n",
      {.gpu = "h100-sxm-80gb"});
  EXPECT_EQ(shape_of<AttentionShape>(read.rows[0]).kv_heads, 2);
  EXPECT_EQ(shape_of<AttentionShape>(read.rows[1]).kv_heads, 0);  // as many as heads
  const double saved = read.rows[1].work.bytes_read.value - read.rows[0].work.bytes_read.value;
  EXPECT_DOUBLE_EQ(saved, 2.0 * 2 * 2 * (8 - 2) * 128 * 64);
  EXPECT_NE(error("op,dtype,batch,heads,kv_heads,seq,head_dim\n"
                  "attention,bf16,2,8,3,128,64\n",
                  {.gpu = "h100-sxm-80gb"})
                .find("a divisor of heads"),
            std::string::npos);
}

TEST_F(KernelTables, AttentionRowsNameTheirKernel) {
  const KernelTable read = table(
      "op,dtype,kernel,kv_write,batch,heads,seq,head_dim,m,n,k\n"
      "attention,bf16,trtllm_gen,1,2,8,128,64,,,\n"
      "attention,bf16,,0,2,8,128,64,,,\n"
      "gemm,bf16,sm90_xmma_gemm,,,,,,8,8,8\n",  // the kernel of a product is not read
      {.gpu = "gb200"});
  const auto& paged = shape_of<AttentionShape>(read.rows[0]);
  EXPECT_EQ(paged.kernel, AttentionGeneration::kTrtllm);
  EXPECT_TRUE(paged.writes_cache);
  const auto& dense = shape_of<AttentionShape>(read.rows[1]);
  EXPECT_EQ(dense.kernel, AttentionGeneration::kFramework);
  EXPECT_FALSE(dense.writes_cache);
  EXPECT_DOUBLE_EQ(read.rows[0].work.bytes().value - read.rows[1].work.bytes().value,
                   4.0 * 2 * 2 * 8 * 128 * 64);
  EXPECT_NE(error("op,dtype,kernel,batch,heads,seq,head_dim\n"
                  "attention,bf16,fa5,1,8,128,64\n",
                  {.gpu = "gb200"})
                .find("expected fa2, fa3, fa4, trtllm_gen or cudnn, found"),
            std::string::npos);
}

TEST_F(KernelTables, ExpertsNameTheirLibraryAndRouting) {
  const std::string head = "op,dtype,kernel,tokens,hidden,inter,topk,experts,tp,distribution\n";
  const KernelTable read = table(head +
                                     "moe,bf16,cutlass,64,2048,768,8,128,4,power_law_1.2\n"
                                     "experts,bf16,triton,64,2048,768,8,128,,\n",
                                 {.gpu = "h100-sxm-80gb"});
  const auto& first = shape_of<ExpertsShape>(read.rows[0]);
  EXPECT_EQ(first.kernel, ExpertsLibrary::kCutlass);
  EXPECT_EQ(first.inter, 192);
  EXPECT_EQ(first.routing, ExpertsShape::Routing::kPowerLaw);
  EXPECT_DOUBLE_EQ(first.power_law, 1.2);
  EXPECT_EQ(shape_of<ExpertsShape>(read.rows[1]).routing, ExpertsShape::Routing::kRandom);
  const auto fails = [&](const std::string& row, const char* why) {
    return error(head + row, {.gpu = "h100-sxm-80gb"}).find(why) != std::string::npos;
  };
  EXPECT_TRUE(fails("moe,bf16,,64,2048,768,8,128,,\n", "triton, cutlass or tuned"));
  EXPECT_TRUE(fails("moe,bf16,triton,64,2048,768,8,128,5,\n", "a divisor of inter"));
  EXPECT_TRUE(fails("moe,bf16,triton,64,2048,768,9,8,,\n", "at most as many as experts"));
  EXPECT_TRUE(fails("moe,bf16,triton,64,2048,768,8,128,,zipf\n", "random, balanced"));
  const KernelTable amd =
      table("gpu,op,dtype,tokens,hidden,inter,topk,experts\nmi300x,moe,fp8,1,7168,2048,9,33\n", {});
  EXPECT_EQ(shape_of<ExpertsShape>(amd.rows[0]).kernel, ExpertsLibrary::kTuned);
}

TEST_F(KernelTables, GroupedProductsAndLinearAttention) {
  const KernelTable read = table(
      "op,dtype,groups,rows,n,k,imbalance,kernel,batch,seq,k_heads,k_dim,v_heads,v_dim,d_conv\n"
      "grouped_gemm,bf16,8,1024,512,256,2.5,,,,,,,,\n"
      "gated_delta,bf16,,,,,,causal_conv1d_fn,2,64,4,128,8,128,4\n"
      "linear_attention,bf16,,,,,,chunk_gated_delta_rule,2,64,4,128,8,128,\n",
      {.gpu = "h100-sxm-80gb"});
  const auto& grouped = shape_of<GroupedGemmShape>(read.rows[0]);
  EXPECT_EQ(grouped.groups, 8);
  EXPECT_DOUBLE_EQ(grouped.imbalance, 2.5);
  EXPECT_EQ(shape_of<LinearAttentionShape>(read.rows[1]).filter, 4);
  EXPECT_EQ(shape_of<LinearAttentionShape>(read.rows[2]).kernel,
            LinearAttentionShape::Kernel::kChunkedRule);
  EXPECT_NE(error("op,dtype,groups,rows,n,k,imbalance\ngrouped_gemm,bf16,8,1024,512,256,0.5\n",
                  {.gpu = "h100-sxm-80gb"})
                .find("a number from 1 to the number of groups"),
            std::string::npos);
}

TEST_F(KernelTables, ReadsCampaignsOfKernelsBench) {
  const KernelTable vectors = table(
      "# device: made up\n# timing: graph replay, no launch cost\n"
      "gpu,op,dtype,direction,rows,cols,batch,features,table_rows,strided,n_inputs,time_us,p10_us,"
      "l2_warm\n"
      "t4,sum,fp32,,64,1024,,,,1,,9,8,0\n"
      "t4,max,bf16,,64,1024,,,,0,,9,8,0\n"
      "t4,gather,fp32,,100,32,,,5000,,,9,8,\n"
      "t4,scatter_add,fp32,,100,32,,,,,,9,8,\n"
      "t4,elementwise,fp16,,64,1024,,,,,3,9,8,1\n");
  EXPECT_FALSE(vectors.has_launch_cost);
  ASSERT_EQ(vectors.rows.size(), 5u);
  EXPECT_TRUE(shape_of<RowShape>(vectors.rows[0]).is_strided);
  EXPECT_EQ(shape_of<RowShape>(vectors.rows[0]).rows, 64);  // results, strided or not
  EXPECT_FALSE(shape_of<RowShape>(vectors.rows[1]).is_strided);
  EXPECT_EQ(shape_of<RowShape>(vectors.rows[2]).table_rows, 5000);
  EXPECT_EQ(shape_of<RowShape>(vectors.rows[3]).table_rows, 0);  // not given
  EXPECT_DOUBLE_EQ(vectors.rows[4].work.bytes_read.value, 3.0 * 64 * 1024 * 2);
  EXPECT_FALSE(vectors.rows[3].is_l2_warm);
  EXPECT_TRUE(vectors.rows[4].is_l2_warm);

  const KernelTable bags = table(
      "op,dtype,optimizer,tables,rows,batch,pooling,dim,zipf\n"
      "embedding_forward,fp16,,4,100000,512,20,64,1.05\n"
      "embedding_backward,fp32,rowwise_adagrad,4,100000,512,20,64,0\n");
  EXPECT_TRUE(bags.has_launch_cost);
  EXPECT_EQ(shape_of<EmbeddingShape>(bags.rows[0]).zipf_exponent, 1.05);
  EXPECT_EQ(shape_of<EmbeddingShape>(bags.rows[0]).zipf_shift, 0);
  EXPECT_EQ(shape_of<EmbeddingShape>(bags.rows[1]).zipf_exponent, 0);
  EXPECT_EQ(shape_of<EmbeddingShape>(bags.rows[1]).optimizer_bytes_per_row, 8);

  const KernelTable copies = table(
      "op,copy_kind,pinned,bytes,row_bytes\n"
      "memcpy,h2d,1,4096,\nmemcpy,d2d,,4096,\nstrided_copy,,,4096,64\nmemset,,,4096,\n");
  EXPECT_FALSE(shape_of<CopyShape>(copies.rows[0]).pageable);
  EXPECT_EQ(shape_of<CopyShape>(copies.rows[1]).run_bytes, 0);
  EXPECT_EQ(shape_of<CopyShape>(copies.rows[2]).run_bytes, 64);
  EXPECT_EQ(shape_of<CopyShape>(copies.rows[2]).kind, CopyKind::kDeviceToDevice);
  EXPECT_EQ(copies.rows[2].work.bytes_written.value, 4096);
}

TEST_F(KernelTables, OnlyTheHeadSaysHowTimesWereTaken) {
  const std::string rows = "op,dtype,rows,cols\nrelu,fp32,4,4\n";
  EXPECT_FALSE(table("#Timing: events, No launch cost\n" + rows).has_launch_cost);
  EXPECT_TRUE(table("# timing: events\n" + rows).has_launch_cost);
  EXPECT_TRUE(table("# no launch cost\n" + rows).has_launch_cost);
  EXPECT_TRUE(table(rows + "# timing: no launch cost\n").has_launch_cost);
}

TEST_F(KernelTables, ColumnsOfCampaignsAreChecked) {
  EXPECT_NE(error("op,dtype,rows,cols,strided\nsum,fp32,4,4,yes\n").find(":2:14: strided"),
            std::string::npos);
  EXPECT_NE(error("op,dtype,tables,rows,batch,pooling,dim,zipf\n"
                  "embedding_forward,fp32,1,9,9,9,9,-1\n")
                .find("zipf: expected a number of at least 0"),
            std::string::npos);
  EXPECT_NE(error("op,bytes\nstrided_copy,4096\n").find("row_bytes"), std::string::npos);
  EXPECT_NE(error("op,dtype,rows,cols,l2_warm\nrelu,fp32,4,4,maybe\n").find("l2_warm"),
            std::string::npos);
}

TEST_F(KernelTables, ASmallFileIsNoHugeTable) {
  const fs::path file = folder_ / "t.csv.gz";
  const std::string comment(std::size_t{1} << 20, '#');
  gzFile out = gzopen(file.c_str(), "wb");
  for (int i = 0; i < 80; ++i) gzwrite(out, comment.data(), static_cast<unsigned>(comment.size()));
  gzclose(out);
  const auto table = read_kernel_table(file, {.gpu_folder = kGpus});
  ASSERT_FALSE(table);
  EXPECT_NE(to_string(table.error()).find("inflates to at most 250 times its size"),
            std::string::npos);
}

TEST_F(KernelTables, CompressedTablesAreReadAlike) {
  const fs::path file = folder_ / "t.csv.gz";
  const std::string text = "m,n,k\n8,8,8\n";
  gzFile out = gzopen(file.c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  const KernelTableOptions options{.gpu_folder = kGpus, .gpu = "t4", .dtype = "fp16"};
  EXPECT_TRUE(read_kernel_table(file, options).has_value());
  fs::resize_file(file, fs::file_size(file) - 4);
  const auto cut = read_kernel_table(file, options);
  ASSERT_FALSE(cut.has_value());
  EXPECT_EQ(cut.error().code, ErrorCode::kSyntax);
}

// ---- options -----------------------------------------------------------------------------------

TEST_F(KernelTables, OptionsFillWhatColumnsLeaveOpen) {
  const KernelTable read = table("device,m,n,k,dtype\nno such,8,8,8,\nP4,8,8,8,fp16\n",
                                 {.gpu = "T4", .op = "linear", .dtype = "fp32"});
  ASSERT_EQ(read.rows.size(), 2u);
  ASSERT_EQ(read.gpus.size(), 1u);
  EXPECT_EQ(read.gpus[0].name, "t4");
  EXPECT_TRUE(shape_of<GemmShape>(read.rows[0]).has_bias);
  EXPECT_EQ(read.rows[0].work.dtype, DType::kFloat32);
  EXPECT_EQ(read.rows[1].work.dtype, DType::kFloat16);
  ASSERT_EQ(read.warnings.size(), 1u);
  EXPECT_NE(read.warnings[0].find("device"), std::string::npos);
}

// ---- errors ------------------------------------------------------------------------------------

TEST_F(KernelTables, ErrorsNameLinePlaceAndColumn) {
  const KernelTableOptions t4{.gpu = "t4", .dtype = "fp32"};
  const std::string head = "op,m,n,k\n";
  EXPECT_EQ(error(head + "bmm,8,8,8\nbmm,8,-3,8\n", t4),
            "table.csv:3:7: n: expected an integer above 0, found \"-3\"");
  EXPECT_EQ(error(head + "bmm,0,8,8\n", t4),
            "table.csv:2:5: m: expected an integer above 0, found \"0\"");
  EXPECT_EQ(error(head + "bmm,nan,8,8\n", t4),
            "table.csv:2:5: m: expected an integer above 0, found \"nan\"");
  EXPECT_EQ(error(head + "bmm,8,8,eight\n", t4),
            "table.csv:2:9: k: expected an integer above 0, found \"eight\"");
  EXPECT_EQ(error(head + "bmm,8,8,\n", t4),
            "table.csv:2:9: k: expected an integer above 0, found nothing");
  EXPECT_EQ(error(head + "bmm,8,8\n", t4), "table.csv:2:7: expected 4 cells, found 3");
  EXPECT_EQ(error(head + "bmm,8,8,8,8\n", t4), "table.csv:2:11: expected 4 cells, found 5");
  EXPECT_EQ(error("op,m,n\nbmm,8,8\n", t4),
            "table.csv:1:1: k: expected this column for op bmm, found none");
  EXPECT_NE(error("op,m,n,m\nbmm,8,8,8\n", t4).find(":1:8: m: expected each column once"),
            std::string::npos);
  EXPECT_NE(error("op,m,n,k\n\"bmm,8,8,8\n", t4).find(":2:1: expected the end of a quoted cell"),
            std::string::npos);
}

TEST_F(KernelTables, SayHowNumbersOf8And4BitsAreScaled) {
  const std::string head = "gpu,op,dtype,scaling,quantizes,m,n,k\n";
  const auto gemm = [&](const std::string& cells) {
    return shape_of<GemmShape>(row(head + cells + ",64,128,256\n"));
  };
  EXPECT_EQ(gemm("b200,gemm,fp8,token,1").scaling, Scaling::kToken);
  EXPECT_TRUE(gemm("b200,gemm,fp8,token,1").quantizes_a);
  EXPECT_EQ(gemm("b200,gemm,fp8,,").scaling, Scaling::kTensor);
  EXPECT_EQ(gemm("b200,linear,nvfp4,,0").scaling, Scaling::kBlock);
  EXPECT_EQ(gemm("b200,gemm,bf16,none,").scaling, Scaling::kTensor);
  const KernelRow quantize = row("gpu,op,dtype,rows,cols\nb200,quantize,fp4,32,64\n");
  EXPECT_EQ(quantize.work.family, KernelFamily::kQuantize);
  EXPECT_DOUBLE_EQ(quantize.work.bytes_written.value, 32 * 64 / 2 + 32 * 64 / 16);
  EXPECT_NE(error(head + "b200,gemm,fp8,row,1,8,8,8\n")
                .find(":2:15: scaling: expected tensor, token or block, found \"row\""),
            std::string::npos);
  EXPECT_NE(error(head + "b200,gemm,bf16,,1,8,8,8\n").find("quantizes: expected 0"),
            std::string::npos);
  EXPECT_NE(error("gpu,op,dtype,rows,cols\nb200,quantize,bf16,32,64\n").find("fp8 or fp4"),
            std::string::npos);
}

TEST_F(KernelTables, RefuseProductsInTypesThatTheGpuLacks) {
  EXPECT_EQ(error("gpu,dtype,m,n,k\nv100-sxm2-32gb,fp8,64,64,64\n"),
            "table.csv:2:16: dtype: expected a type that the matrix units of v100-sxm2-32gb have, "
            "found fp8");
  EXPECT_NE(error("m,n,k\n64,64,64\n", {.gpu = "h100-sxm-80gb", .dtype = "fp4"}).find("found fp4"),
            std::string::npos);
  EXPECT_EQ(error("m,n,k\n64,64,64\n", {.gpu = "gb200", .dtype = "fp4"}), "no error");
}

TEST_F(KernelTables, UnknownNamesAreAnsweredWithNearOnes) {
  const std::string op = error("op,m,n,k\nlinaer,8,8,8\n", {.gpu = "t4", .dtype = "fp32"});
  EXPECT_NE(op.find(":2:1: op: "), std::string::npos) << op;
  EXPECT_NE(op.find("linear"), std::string::npos) << op;
  const std::string type = error("m,n,k,dtype\n8,8,8,fp23\n", {.gpu = "t4"});
  EXPECT_NE(type.find(":2:7: dtype: "), std::string::npos) << type;
  EXPECT_NE(type.find("fp32"), std::string::npos) << type;
  const std::string gpu = error("m,n,k,gpu\n8,8,8,H2O\n", {.dtype = "fp8"});
  EXPECT_NE(gpu.find(":2:7: gpu: "), std::string::npos) << gpu;
  EXPECT_NE(gpu.find("h20"), std::string::npos) << gpu;
  EXPECT_NE(error("m,n,k\n8,8,8\n", {.gpu = "t5", .dtype = "fp32"}).find("t4"), std::string::npos);
  EXPECT_NE(error("m,n,k\n8,8,8\n", {.gpu = "t4", .op = "gem", .dtype = "fp32"}).find("gemm"),
            std::string::npos);
}

TEST_F(KernelTables, WhatNobodySaysIsAnError) {
  EXPECT_EQ(error("m,n,k,trans_a\n8,8,8,T\n", {.gpu = "t4", .dtype = "fp32"}),
            "table.csv:1:1: trans_b: expected this column for op gemm, found none");
  EXPECT_NE(error("m,n,k\n8,8,8\n", {.gpu = "t4"}).find(":1:1: dtype: expected this column"),
            std::string::npos);
  EXPECT_NE(error("rows,cols\n8,8\n", {.gpu = "t4", .dtype = "fp32"}).find(":1:1: op: expected"),
            std::string::npos);
  EXPECT_NE(error("m,n,k\n8,8,8\n", {.gpu = "t4", .dtype = "fp32", .needs_time = true})
                .find("time_us: expected this column"),
            std::string::npos);
  EXPECT_NE(error("m,n,k,time_us\n8,8,8,\n", {.gpu = "t4", .dtype = "fp32", .needs_time = true})
                .find(":2:7: time_us: expected a number above 0, found nothing"),
            std::string::npos);
  EXPECT_EQ(error(""), "table.csv: expected a header, found an empty file");
  EXPECT_EQ(error("m,n,k\n"), "table.csv: expected rows, found only a header");
  const auto none = read_kernel_table(folder_ / "none.csv", {.gpu_folder = kGpus});
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::kIo);
}

TEST_F(KernelTables, ShapesThatCannotBeAreErrors) {
  const KernelTableOptions t4{.gpu = "t4", .dtype = "fp32"};
  EXPECT_NE(
      error("n,c,h,w,k,r,s\n1,3,4,9,8,5,5\n", t4).find("h: expected an image that the filter"),
      std::string::npos);
  EXPECT_NE(error("op,bags_total,rows,dim,tables,pooling\ntbe_forward,10,9,8,4,1\n", t4)
                .find("bags_total: expected a multiple of the tables"),
            std::string::npos);
  EXPECT_NE(error("cell,direction,hidden,batch,timesteps\nlstm,up,8,8,8\n", t4)
                .find("direction: expected fwd, bwd"),
            std::string::npos);
  EXPECT_NE(error("m,n,k,layout\n8,8,8,xy\n", t4).find("layout: expected nn"), std::string::npos);
}

// ---- public data -------------------------------------------------------------------------------

TEST(PublicKernelTables, AllAreReadInFull) {
  const char* root = std::getenv("PERFMODEL_PUBLIC_DATA");
  if (!root || !*root) GTEST_SKIP() << "PERFMODEL_PUBLIC_DATA is not set";
  struct Case {
    const char* file;
    std::size_t rows, gpus;
    const char* dtype = "";
  };
  for (const auto& [file, rows, gpus, dtype] : {
           Case{"neusight/kernels_bmm.csv.gz", 98699, 7},
           Case{"neusight/kernels_linear.csv.gz", 39438, 7},
           Case{"neusight/kernels_elementwise.csv.gz", 137969, 7},
           Case{"neusight/kernels_softmax_ln.csv.gz", 22800, 7},
           Case{"neusight/kernels_conv2d.csv.gz", 19875, 4},
           Case{"deepbench/gemm.csv.gz", 1440, 8},
           Case{"deepbench/conv.csv.gz", 2401, 8},
           Case{"deepbench/rnn.csv.gz", 1272, 8},
           Case{"fp8_gemm/gemm_fp8.csv.gz", 16818, 2, "fp8"},
           Case{"silicon/quantize_fp8.csv.gz", 4144, 4},
           Case{"silicon/amd_gemm.csv.gz", 19723, 2},
       }) {
    const auto read = read_kernel_table(fs::path(root) / file,
                                        {.gpu_folder = kGpus, .dtype = dtype, .needs_time = true});
    ASSERT_TRUE(read.has_value()) << to_string(read.error());
    EXPECT_EQ(read->rows.size(), rows) << file;
    EXPECT_EQ(read->gpus.size(), gpus) << file;
    EXPECT_TRUE(read->warnings.empty()) << file;
    EXPECT_TRUE(std::ranges::all_of(read->rows, [](const KernelRow& row) {
      return row.gpu >= 0 && row.measured_us > 0 && row.work.flop.value > 0 &&
             row.work.bytes().value > 0;
    })) << file;
  }
  const auto ops =
      read_kernel_table(fs::path(root) / "neusight/opgraphs.csv.gz", {.gpu_folder = kGpus});
  ASSERT_TRUE(ops.has_value()) << to_string(ops.error());
  EXPECT_EQ(ops->rows.size(), 34668u);
  EXPECT_EQ(ops->graphs.size(), 38u);
}

// The devices that the public data names, in its spelling.
TEST(PublicKernelTables, DeviceNamesAreAliases) {
  for (const auto& [name, gpu] : std::initializer_list<std::pair<const char*, const char*>>{
           {"P4", "p4"},
           {"P100-PCIE-16GB", "p100-pcie-16gb"},
           {"V100-PCIE-32GB", "v100-pcie-32gb"},
           {"T4", "t4"},
           {"A100-PCIE-40GB", "a100-pcie-40gb"},
           {"A100-SXM4-40GB", "a100-sxm-40gb"},
           {"A100-PCIE-80GB", "a100-pcie-80gb"},
           {"L4", "l4"},
           {"H100-SXM-80GB", "h100-sxm-80gb"},
           {"MI100", "mi100"},
           {"MI210", "mi210"},
           {"MI250", "mi250"},
           {"m40", "m40"},
           {"titanx_maxwell", "titan-x-maxwell"},
           {"titanx_pascal", "titan-x-pascal"},
           {"titanxp", "titan-xp"},
           {"gtx1080ti", "gtx-1080-ti"},
           {"p100", "p100-pcie-16gb"},
           {"mi25", "mi25"},
           {"vegafe", "vega-fe"},
           {"v100", "v100-sxm2-16gb"},
           {"t4", "t4"},
           {"H20", "h20"},
           {"H800", "h800"},
           {"H100", "h100-sxm-80gb"},
           {"H200", "h200-sxm-141gb"}}) {
    const auto found = find_gpu(name, kGpus);
    ASSERT_TRUE(found.has_value()) << to_string(found.error());
    EXPECT_EQ(found->name, gpu) << name;
  }
}

// ---- variants that only the framework's name of an op tells ------------------------------------

TEST_F(KernelTables, TheFrameworksNameTellsUpsamplingAndNormsOfSquares) {
  const KernelTable read = table(
      "gpu,op,dtype,layout,elements,n_inputs,rows,cols,name\n"
      "mi300x,elementwise,bf16,strided,1000000000,1,,,aten::upsample_nearest3d\n"
      "mi300x,elementwise,bf16,strided,1000000000,1,,,aten::upsample_nearest2d\n"
      "h100-sxm-80gb,elementwise,bf16,strided,1000000000,1,,,aten::upsample_nearest3d\n"
      "h100-sxm-80gb,elementwise,bf16,strided,1000000000,1,,,aten::copy_\n"
      "mi300x,layer_norm,bf16,,,,1000000,32,aten::_fused_rms_norm\n"
      "mi300x,layer_norm,bf16,,,,1000000,32,aten::layer_norm\n"
      "mi300x,rms_norm,bf16,,,,1000000,32,\n");
  ASSERT_EQ(read.rows.size(), 7u);
  EXPECT_EQ(read.rows[0].work.layout, Layout::kUpsampled3d);
  EXPECT_EQ(read.rows[1].work.layout, Layout::kStrided);
  EXPECT_TRUE(shape_of<RowShape>(read.rows[4]).is_rms);
  EXPECT_FALSE(shape_of<RowShape>(read.rows[5]).is_rms);
  EXPECT_TRUE(shape_of<RowShape>(read.rows[6]).is_rms);
  std::vector<Price> prices;
  for (const KernelRow& row : read.rows) {
    prices.push_back(
        KernelModels::heuristic().price(row.work, read.gpus[static_cast<std::size_t>(row.gpu)]));
  }
  // 1e9 elements at 0.26 and 1.3 per clock of 304 units and 2100 MHz.
  EXPECT_NEAR(prices[0].compute.count(), 1e9 / (0.26 * 304 * 2100), 1);
  EXPECT_NEAR(prices[1].compute.count(), 1e9 / (1.3 * 304 * 2100), 1);
  EXPECT_EQ(prices[2].time, prices[3].time);  // not measured there: as other strided kernels
  EXPECT_FALSE(prices[2].in_range);
  EXPECT_GT(prices[5].time, 3 * prices[4].time);
  EXPECT_EQ(prices[4].time, prices[6].time);
}

// DeepBench's share of the vector peak for few channels; 3 x 16 x 16 filters side by side.
TEST_F(KernelTables, PatchEmbeddingsInHalfTypesRunOnVectorUnits) {
  const KernelTable read = table(
      "gpu,op,dtype,n,k,direction,c,h,w,r,s,pad_h,pad_w,stride_h,stride_w\n"
      "h100-sxm-80gb,conv2d,bf16,128,768,fwd,3,224,224,16,16,0,0,16,16\n"
      "h100-sxm-80gb,conv2d,bf16,128,768,fwd,8,224,224,16,16,0,0,16,16\n");
  ASSERT_EQ(read.rows.size(), 2u);
  const auto us = [&](std::size_t i) {
    return KernelModels::heuristic().price(read.rows[i].work, read.gpus[0]).time.count();
  };
  const double flop = 2.0 * 128 * 14 * 14 * 768 * 3 * 16 * 16;
  EXPECT_NEAR(us(0), flop / (0.35 * 66.91e6), 3);
  EXPECT_LT(us(1), 0.75 * us(0));  // channels are padded to what Hopper's units load
}

}  // namespace kernel_table_test
}  // namespace perfmodel
