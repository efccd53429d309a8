#include "kernels_bench/kernels/elementwise.hpp"

#include "kernel_support.hpp"

namespace kernels_bench {
namespace elementwise_kernel_test {

template <class T>
class ElementwiseKernel : public testing::Test {};
TYPED_TEST_SUITE(ElementwiseKernel, TensorTypes, TypeNames);

template <class T, class Op>
void expect_elementwise(ElementwiseCase::Op op) {
  for (const std::int64_t elements : {1, 3, 8, 9, 511, 1031}) {
    std::vector<Tensor<T>> in;
    for (unsigned n = 0; n < 3; ++n) in.push_back(Tensor<T>::random(elements, n, -4, 4));
    Tensor<T> out(elements);
    kernels::Elementwise<Op, T> body{};
    for (int n = 0; n < Op::kInputs; ++n) body.in[n] = in[n].data();
    body.out = out.data();
    body.elements = elements;
    run_emulated(body, {.blocks = 3});

    reference::Row expected;
    for (std::int64_t i = 0; i < elements; ++i) {
      expected.push_back(reference::elementwise(op, kernels::to_float(in[0][i]),
                                                kernels::to_float(in[1][i]),
                                                kernels::to_float(in[2][i])));
    }
    expect_near(out.all(), expected, kTolerance<T>);
  }
}

TYPED_TEST(ElementwiseKernel, Relu) {
  expect_elementwise<TypeParam, kernels::Relu>(ElementwiseCase::Op::kRelu);
}
TYPED_TEST(ElementwiseKernel, Gelu) {
  expect_elementwise<TypeParam, kernels::Gelu>(ElementwiseCase::Op::kGelu);
}
TYPED_TEST(ElementwiseKernel, Tanh) {
  expect_elementwise<TypeParam, kernels::Tanh>(ElementwiseCase::Op::kTanh);
}
TYPED_TEST(ElementwiseKernel, Sigmoid) {
  expect_elementwise<TypeParam, kernels::Sigmoid>(ElementwiseCase::Op::kSigmoid);
}
TYPED_TEST(ElementwiseKernel, Exp) {
  expect_elementwise<TypeParam, kernels::Exp>(ElementwiseCase::Op::kExp);
}
TYPED_TEST(ElementwiseKernel, AddScalar) {
  expect_elementwise<TypeParam, kernels::AddScalar>(ElementwiseCase::Op::kAddScalar);
}
TYPED_TEST(ElementwiseKernel, Add) {
  expect_elementwise<TypeParam, kernels::Add>(ElementwiseCase::Op::kAdd);
}
TYPED_TEST(ElementwiseKernel, Mul) {
  expect_elementwise<TypeParam, kernels::Mul>(ElementwiseCase::Op::kMul);
}
TYPED_TEST(ElementwiseKernel, Addcmul) {
  expect_elementwise<TypeParam, kernels::Addcmul>(ElementwiseCase::Op::kAddcmul);
}

}  // namespace elementwise_kernel_test
}  // namespace kernels_bench
