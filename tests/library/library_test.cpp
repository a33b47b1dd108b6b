// The library's kernels against the reference evaluations: random shapes, axes, dtypes, ties, NaNs,
// work shared out at random, results in place.
#include "library/library.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>

#include "graph/elementwise_eval.hpp"
#include "graph/op_info.hpp"
#include "rlx/ops.hpp"

namespace rlx {
namespace {

using Random = std::mt19937;

std::int64_t whole(Random& random, std::int64_t low, std::int64_t high) {
  return std::uniform_int_distribution<std::int64_t>(low, high)(random);
}

/// Few different numbers, so that there are ties, and some that are special.
Tensor values(DType dtype, const Dims& dims, Random& random) {
  constexpr double special[] = {std::numeric_limits<double>::quiet_NaN(),
                                std::numeric_limits<double>::infinity(),
                                -std::numeric_limits<double>::infinity(), -0.0, 0.0};
  Tensor tensor(dtype, dims);
  const bool with_special = whole(random, 0, 2) == 0;
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const std::int64_t number = whole(
        random, is_unsigned_integer(dtype) || dtype == boolean ? 0 : -9, dtype == boolean ? 1 : 9);
    ScalarDatum datum;
    datum.integer = number;
    datum.number = static_cast<double>(number) / 4;
    if (with_special && whole(random, 0, 7) == 0) datum.number = special[whole(random, 0, 4)];
    store_datum(dtype, tensor.mutable_data(), i, datum);
  }
  return tensor;
}

Tensor indices(DType dtype, const Dims& dims, std::int64_t size, Random& random) {
  Tensor tensor(dtype, dims);
  for (std::int64_t i = 0; i < tensor.elements(); ++i)
    store_datum(dtype, tensor.mutable_data(), i, {.integer = whole(random, -size, size - 1)});
  return tensor;
}

Dims random_dims(Random& random, int rank, std::int64_t most = 7) {
  Dims dims;
  for (int i = 0; i < rank; ++i) dims.push_back(whole(random, 1, most));
  return dims;
}

DType any_of(Random& random, std::initializer_list<DType> list) {
  return list.begin()[whole(random, 0, static_cast<std::int64_t>(list.size()) - 1)];
}

/// Bits are equal, or both are NaN.
std::string difference(const Tensor& a, const Tensor& b) {
  for (std::int64_t i = 0; i < a.elements(); ++i) {
    const ScalarDatum x = load_datum(a.dtype(), a.data(), i),
                      y = load_datum(b.dtype(), b.data(), i);
    if (x.integer == y.integer && x.number == y.number) continue;
    if (std::isnan(x.number.real()) && std::isnan(y.number.real())) continue;
    return fmt::format("element {}: {} or {} instead of {} or {}", i, x.number.real(), x.integer,
                       y.number.real(), y.integer);
  }
  return {};
}

std::vector<Type> types_of(const std::vector<Tensor>& tensors) {
  std::vector<Type> types;
  for (const Tensor& tensor : tensors)
    types.push_back({tensor.dtype(), Shape(tensor.dims().begin(), tensor.dims().end())});
  return types;
}

class Instance {
 public:
  Instance(Op op, std::vector<Tensor> inputs) : op_(std::move(op)), inputs_(std::move(inputs)) {
    types_ = types_of(inputs_);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      given_.push_back(inputs_[i].empty() && inputs_[i].elements() != 0 ? nullptr : &types_[i]);
    auto inferred = op_.info().infer(op_.attributes(), InferArgs{given_});
    EXPECT_TRUE(inferred.ok()) << inferred.error().message;
    if (inferred.ok()) results_ = *std::move(inferred);
    kernel_ = library::make_kernel(op_, given_, results_);
  }
  const library::Kernel* kernel() const { return kernel_.get(); }

  /// Runs the items in pieces, in any order, as workers would.
  std::vector<Tensor> run(Random& random, bool in_place) const {
    std::vector<Tensor> outputs;
    for (const Type& type : results_) outputs.emplace_back(type.dtype, type.dims());
    std::vector<void*> buffers;
    std::vector<Tensor> own;
    for (const Tensor& input : inputs_) {
      own.emplace_back(input.dtype(), input.dims());
      std::memcpy(own.back().mutable_data(), input.data(), input.bytes());
      buffers.push_back(own.back().mutable_data());
    }
    for (Tensor& output : outputs) buffers.push_back(output.mutable_data());
    const std::int32_t operand = kernel_->work().in_place;
    if (in_place && operand >= 0) {
      buffers[static_cast<std::size_t>(operand)] = outputs[0].mutable_data();
      std::memcpy(outputs[0].mutable_data(), inputs_[static_cast<std::size_t>(operand)].data(),
                  outputs[0].bytes());
    }
    Tensor scratch(u8, {kernel_->scratch_bytes() + 1});
    std::vector<std::int64_t> cuts{0, kernel_->work_items()};
    for (int i = 0; i < 2; ++i) cuts.push_back(whole(random, 0, kernel_->work_items()));
    std::sort(cuts.begin(), cuts.end());
    for (std::size_t i = cuts.size() - 1; i-- > 0;) {
      if (cuts[i] == cuts[i + 1]) continue;
      std::memset(scratch.mutable_data(), 0xee, scratch.bytes());
      kernel_->run(buffers.data(), cuts[i], cuts[i + 1], scratch.mutable_data());
    }
    return outputs;
  }

  void check(Random& random) const {
    std::string text(op_.name());
    for (const Type& type : types_) text += " " + type.text();
    SCOPED_TRACE(text);
    ASSERT_TRUE(kernel_) << "no kernel";
    const auto expected = evaluate(op_, inputs_);
    ASSERT_TRUE(expected.ok()) << expected.error().message;
    for (const bool in_place : {false, true}) {
      const std::vector<Tensor> outputs = run(random, in_place);
      for (std::size_t k = 0; k < outputs.size(); ++k)
        EXPECT_EQ(difference(outputs[k], (*expected)[k]), "") << "result " << k;
    }
  }

 private:
  Op op_;
  std::vector<Tensor> inputs_;
  std::vector<Type> types_, results_;
  std::vector<const Type*> given_;
  std::unique_ptr<library::Kernel> kernel_;
};

constexpr int instances = 150;

TEST(Library, orders_as_the_reference_does) {
  Random random(1);
  for (int i = 0; i < instances; ++i) {
    const DType dtype =
        any_of(random, {f32, f64, f16, bf16, i8, u8, i16, u16, i32, u32, i64, u64, boolean});
    Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 3)));
    const auto axis = static_cast<std::size_t>(whole(random, 0, std::ssize(dims) - 1));
    dims[axis] = whole(random, 1, i % 5 == 0 ? 1500 : 200);
    const Tensor x = values(dtype, dims, random);
    const std::int64_t named = static_cast<std::int64_t>(axis) - (i % 2 ? std::ssize(dims) : 0);
    Instance(op::Sort{named, i % 3 == 0}, {x}).check(random);
    const std::int64_t k = whole(random, 1, std::min<std::int64_t>(dims[axis], i % 4 ? 30 : 7));
    Instance(op::TopK{k, named, i % 3 != 0}, {x}).check(random);
  }
}

TEST(Library, workers_share_out_what_scatters_copy_and_not_many_updates) {
  const auto items = [](std::int64_t rows, std::int64_t updates) {
    const Type x{f32, {rows, 32}}, indices{i64, {updates, 32}}, values{f32, {updates, 32}};
    const op::ScatterElements scatter{.axis = 0, .mode = ScatterMode::add};
    const std::array inputs{&x, &indices, &values};
    return library::work_of(Op(scatter), inputs, std::array{x}).items;
  };
  EXPECT_EQ(items(1000, 3000), 1);
  EXPECT_EQ(items(100'000, 10), 100'000);
}

TEST(Library, keeps_the_best_of_long_lines) {
  Random random(2);
  for (const DType dtype : {f32, f64, f16, i64}) {
    // Rising numbers are the worst case of every filter.
    Tensor rising(dtype, {9000}), noise(dtype, {9000});
    for (std::int64_t i = 0; i < 9000; ++i) {
      const std::int64_t number = whole(random, -30000, 30000);
      store_datum(dtype, rising.mutable_data(), i,
                  {.number = static_cast<double>(i), .integer = i});
      store_datum(dtype, noise.mutable_data(), i,
                  {.number = static_cast<double>(number) / 16, .integer = number});
    }
    for (const std::int64_t k : {1, 5, 60, 2000}) {
      for (const Tensor& x : {rising, noise}) {
        Instance(op::TopK{k, 0, true}, {x}).check(random);
        Instance(op::TopK{k, 0, false}, {x}).check(random);
      }
    }
  }
}

TEST(Library, accumulates_as_the_reference_does) {
  Random random(3);
  for (int i = 0; i < instances; ++i) {
    const DType dtype = any_of(random, {f32, f64, f16, bf16, i8, u8, i32, u32, i64, u64});
    Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 4)));
    if (i % 10 == 0) dims.back() = 300;
    const std::int64_t axis = whole(random, -std::ssize(dims), std::ssize(dims) - 1);
    const Reduction kind = std::array{Reduction::sum, Reduction::prod, Reduction::min,
                                      Reduction::max}[static_cast<std::size_t>(i % 4)];
    const bool exclusive = i % 4 < 2 && whole(random, 0, 1) == 1;
    Instance(op::Cumulative{kind, axis, exclusive, whole(random, 0, 1) == 1},
             {values(dtype, dims, random)})
        .check(random);
  }
}

constexpr ScatterMode modes[] = {ScatterMode::assign, ScatterMode::add, ScatterMode::mul,
                                 ScatterMode::min, ScatterMode::max};

TEST(Library, scatters_elements_as_the_reference_does) {
  Random random(4);
  for (int i = 0; i < instances; ++i) {
    const ScatterMode mode = modes[i % 5];
    const DType dtype = mode == ScatterMode::assign
                            ? any_of(random, {f32, f16, i64, boolean, u8, c128})
                            : any_of(random, {f32, f64, f16, bf16, i8, i32, i64, u8, u64});
    Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 4)));
    if (i % 3 == 0) dims[0] = 1;
    const auto axis = static_cast<std::size_t>(whole(random, 0, std::ssize(dims) - 1));
    Dims index_dims;
    for (const std::int64_t dim : dims) index_dims.push_back(whole(random, i % 20 ? 1 : 0, dim));
    index_dims[axis] = whole(random, 1, 9);
    const Tensor at = indices(i % 2 ? i64 : i32, index_dims, dims[axis], random);
    Instance(op::ScatterElements{static_cast<std::int64_t>(axis), mode},
             {values(dtype, dims, random), at, values(dtype, index_dims, random)})
        .check(random);
  }
}

TEST(Library, scatters_blocks_as_the_reference_does) {
  Random random(5);
  for (int i = 0; i < instances; ++i) {
    const ScatterMode mode = modes[i % 5];
    const DType dtype = any_of(random, {f32, f64, f16, i32, i64, u8});
    const Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 4)), 5);
    const std::int64_t depth = whole(random, 0, std::ssize(dims));
    Dims index_dims = random_dims(random, static_cast<int>(whole(random, 0, 2)));
    Dims update_dims = index_dims;
    index_dims.push_back(depth);
    update_dims.insert(update_dims.end(), dims.begin() + depth, dims.end());
    // One range for all columns: that of the smallest axis.
    std::int64_t size = 9;
    for (std::int64_t k = 0; k < depth; ++k)
      size = std::min(size, dims[static_cast<std::size_t>(k)]);
    Instance(op::ScatterNd{mode},
             {values(dtype, dims, random), indices(i % 2 ? i64 : i32, index_dims, size, random),
              values(dtype, update_dims, random)})
        .check(random);
  }
}

TEST(Library, writes_slices_as_the_reference_does) {
  Random random(6);
  for (int i = 0; i < instances; ++i) {
    const DType dtype = any_of(random, {f32, f16, i64, boolean, c64});
    const Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 4)));
    Dims update_dims;
    for (const std::int64_t dim : dims)
      update_dims.push_back(whole(random, 0, 2) == 0 ? dim : whole(random, i % 20 ? 1 : 0, dim));
    std::vector<Tensor> inputs{values(dtype, dims, random), values(dtype, update_dims, random)};
    for (std::size_t k = 0; k < dims.size(); ++k) inputs.push_back(indices(i64, {}, 9, random));
    Instance(op::DynamicUpdateSlice{}, inputs).check(random);
  }
}

TEST(Library, finds_maxima_of_windows_as_the_reference_does) {
  Random random(7);
  for (int i = 0; i < instances; ++i) {
    const DType dtype = any_of(random, {f32, f64, f16, i8, u8, i32});
    op::WindowArgMax a;
    Dims dims = random_dims(random, 2, 3);
    const int rank = static_cast<int>(whole(random, 1, 3));
    for (int k = 0; k < rank; ++k) {
      a.window.push_back(whole(random, 1, 3));
      a.strides.push_back(whole(random, 1, 3));
      a.dilations.push_back(whole(random, 1, 2));
      a.pad_low.push_back(whole(random, 0, 3));
      a.pad_high.push_back(whole(random, 0, 3));
      dims.push_back(whole(random, 5, 9));
    }
    a.column_major = i % 2 == 0;
    Instance(a, {values(dtype, dims, random)}).check(random);
  }
}

TEST(Library, pads_as_the_reference_does) {
  Random random(8);
  for (int i = 0; i < instances; ++i) {
    const DType dtype = any_of(random, {f32, f16, i64, boolean, f8e5m2, c64});
    const Dims dims = random_dims(random, static_cast<int>(whole(random, 1, 4)), 5);
    op::Pad pad{.mode = static_cast<PadMode>(i % 4)};
    for (const std::int64_t dim : dims) {
      const bool plain = whole(random, 0, 2) == 0;
      pad.low.push_back(plain ? 0 : whole(random, -(dim - 1) / 2, 6));
      pad.high.push_back(plain ? 0 : whole(random, -(dim - 1) / 2, 6));
    }
    std::vector<Tensor> inputs{values(dtype, dims, random)};
    if (pad.mode == PadMode::constant && i % 8 == 0) inputs.push_back(values(dtype, {}, random));
    Instance(pad, inputs).check(random);
  }
}

TEST(Library, eliminates_as_the_reference_does) {
  Random random(9);
  for (const DType dtype : {f32, f64, f16}) {
    for (const std::int64_t n : {1, 2, 5, 9}) {
      Tensor x(dtype, {3, 4, n, n});
      for (std::int64_t i = 0; i < x.elements(); ++i)
        store_datum(dtype, x.mutable_data(), i,
                    {.number = static_cast<double>(whole(random, -8, 8)) / 8});
      Instance(op::Determinant{}, {x}).check(random);
    }
  }
}

TEST(Library, names_an_index_outside_its_axis) {
  Random random(10);
  const Tensor x = values(f32, {3, 4}, random), update = values(f32, {1, 4}, random);
  const auto message_of = [&](Op op, const Tensor& at, const Tensor& updates) {
    const Instance instance(std::move(op), {x, at, updates});
    try {
      instance.run(random, false);
    } catch (const Exception& failure) {
      return failure.error().message;
    }
    return std::string("no error");
  };
  EXPECT_EQ(message_of(op::ScatterNd{}, Tensor::of<std::int64_t>({1, 1}, {3}), update),
            "Index (3) is outside axis (0) of f32[3,4].");
  const Tensor far = Tensor::of<std::int64_t>({1, 4}, {0, 1, -5, 2});
  EXPECT_EQ(message_of(op::ScatterElements{1}, far, update),
            "Index (-5) is outside axis (1) of f32[3,4].");
}

}  // namespace
}  // namespace rlx
