// What a convolution with few output channels can be written as.
#pragma once

#include <memory>
#include <vector>

#include "rlx/graph.hpp"
#include "rlx/ops.hpp"

namespace rlx::passes {

/// A channels-last convolution x [N, spatial..., C] * w [spatial..., C, n] -> y, all dims known.
struct FewChannels {
  op::Conv conv;
  Dims x, w, y;
  bool planes = false;  ///< x lies in memory as [N, C, spatial...]

  std::size_t axes() const { return w.size() - 2; }
  std::int64_t channels() const { return w[axes()]; }
  std::int64_t outputs() const { return w.back(); }
  std::int64_t taps() const;    ///< of all axes
  std::int64_t points() const;  ///< of the result, images included
  std::int64_t stride(std::size_t axis) const;
  std::int64_t dilation(std::size_t axis) const;
  std::int64_t pad_low(std::size_t axis) const;
};

/// Another way to compute it, by a value `result` that holds y in an order of its own.
class Form {
 public:
  virtual ~Form() = default;
  virtual std::string what() const = 0;
  virtual double weights() const = 0;  ///< how many times as large they are
  virtual Value result(Value x, Value w) const = 0;
  /// A value with an element for each output channel, as an operand of maps of `result`.
  virtual Value of_channels(Value operand) const = 0;
  /// y of `result`, or of a map of it.
  virtual Value in_order(Value result) const = 0;
};

using Forms = std::vector<std::shared_ptr<const Form>>;

/// The forms that may be faster, judged by the lanes that the convolution leaves idle.
Forms forms_of(const FewChannels& convolution);

}  // namespace rlx::passes
