// The peer: oneDNN's matmul, weights in the layout it likes, bias and GELU as its own epilogue.
#include <dnnl.hpp>
#include <memory>
#include <unordered_map>

#include "gemm_bench.hpp"

namespace rlx::bench {

std::function<void()> dnnl_gemm(const GemmShape& shape, float* a, float* b, float* bias, float* c) {
  using dnnl::memory;
  const auto f32 = memory::data_type::f32;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  auto stream = std::make_shared<dnnl::stream>(engine);
  const auto described = [&](memory::dims dims, memory::format_tag tag) {
    return memory::desc(std::move(dims), f32, tag);
  };
  const auto ab = memory::format_tag::ab;
  const auto a_desc = described({shape.m, shape.k}, ab);
  const auto b_desc = described({shape.k, shape.n}, ab);
  const auto b_any = described({shape.k, shape.n}, memory::format_tag::any);
  const auto bias_desc = described({1, shape.n}, ab);
  const auto c_desc = described({shape.m, shape.n}, ab);
  dnnl::primitive_attr attributes;
  if (shape.behind == Behind::gelu) {
    dnnl::post_ops post;
    post.append_eltwise(1.0F, dnnl::algorithm::eltwise_gelu_erf, 0.0F, 0.0F);
    attributes.set_post_ops(post);
  }
  const auto desc = shape.behind == Behind::gelu
                        ? dnnl::matmul::desc(a_desc, b_any, bias_desc, c_desc)
                        : dnnl::matmul::desc(a_desc, b_any, c_desc);
  const dnnl::matmul::primitive_desc primitive_desc(desc, attributes, engine);
  auto primitive = std::make_shared<dnnl::matmul>(primitive_desc);
  memory packed(primitive_desc.weights_desc(), engine);
  memory plain(b_desc, engine, b);
  dnnl::reorder(plain, packed).execute(*stream, plain, packed);
  stream->wait();
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC, memory(a_desc, engine, a)},
                                            {DNNL_ARG_WEIGHTS, packed},
                                            {DNNL_ARG_DST, memory(c_desc, engine, c)}};
  if (shape.behind == Behind::gelu)
    arguments.emplace(DNNL_ARG_BIAS, memory(bias_desc, engine, bias));
  return [=] {
    primitive->execute(*stream, arguments);
    stream->wait();
  };
}

std::function<void()> dnnl_convolution(const ConvolutionShape& shape, float* a, float* weights,
                                       float* c) {
  using dnnl::memory;
  const auto f32 = memory::data_type::f32;
  const auto any = memory::format_tag::any;
  const auto nhwc = memory::format_tag::nhwc;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  auto stream = std::make_shared<dnnl::stream>(engine);
  const memory::dims from{1, shape.channels, shape.size, shape.size};
  const memory::dims filter{shape.filters, shape.channels, shape.kernel, shape.kernel};
  const memory::dims to{1, shape.filters, shape.out(), shape.out()};
  const memory::dims stride{shape.stride, shape.stride};
  const memory::dims padding{shape.padding, shape.padding};
  dnnl::primitive_attr attributes;
  dnnl::post_ops post;
  post.append_eltwise(1.0F, dnnl::algorithm::eltwise_relu, 0.0F, 0.0F);
  attributes.set_post_ops(post);
  const dnnl::convolution_forward::desc desc(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      memory::desc(from, f32, any), memory::desc(filter, f32, any), memory::desc(to, f32, any),
      stride, padding, padding);
  const dnnl::convolution_forward::primitive_desc primitive_desc(desc, attributes, engine);
  auto primitive = std::make_shared<dnnl::convolution_forward>(primitive_desc);
  const auto reordered = [&](const memory::desc& like, memory plain) {
    memory result(like, engine);
    dnnl::reorder(plain, result).execute(*stream, plain, result);
    stream->wait();
    return result;
  };
  const memory source =
      reordered(primitive_desc.src_desc(), memory(memory::desc(from, f32, nhwc), engine, a));
  const memory filters =
      reordered(primitive_desc.weights_desc(),
                memory(memory::desc(filter, f32, memory::format_tag::ohwi), engine, weights));
  memory result(primitive_desc.dst_desc(), engine);
  const std::unordered_map<int, memory> arguments{
      {DNNL_ARG_SRC, source}, {DNNL_ARG_WEIGHTS, filters}, {DNNL_ARG_DST, result}};
  primitive->execute(*stream, arguments);
  memory plain(memory::desc(to, f32, nhwc), engine, c);
  dnnl::reorder(result, plain).execute(*stream, result, plain);
  stream->wait();
  return [=] {
    primitive->execute(*stream, arguments);
    stream->wait();
  };
}

}  // namespace rlx::bench
