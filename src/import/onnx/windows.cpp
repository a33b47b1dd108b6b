// Windows of convolutions and pools.
#include "import/onnx/windows.hpp"

#include <algorithm>

#include "import/onnx/build.hpp"

namespace rlx::onnx {
namespace {

// SAME: as many windows as ceil(in / stride); the odd element goes to the end (UPPER) or start.
void pad_same(Windows& w, const Value& x, bool upper) {
  for (std::size_t i = 0; i < w.sizes.size(); ++i) {
    const auto reach = (w.sizes[i] - 1) * w.dilations[i] + 1;
    std::int64_t total = reach - 1;
    // With a stride of 1 the padding does not depend on the size.
    if (w.strides[i] != 1) {
      const auto in = static_dim(x, static_cast<std::int64_t>(i) + 2);
      const auto count = (in + w.strides[i] - 1) / w.strides[i];
      total = std::max<std::int64_t>((count - 1) * w.strides[i] + reach - in, 0);
    }
    w.pad_low[i] = upper ? total / 2 : total - total / 2;
    w.pad_high[i] = total - w.pad_low[i];
  }
}

// ceil_mode: one more window where it starts inside the input or its front padding.
void pad_for_ceil(Windows& w, const Value& x) {
  for (std::size_t i = 0; i < w.sizes.size(); ++i) {
    if (w.strides[i] == 1) continue;
    const auto in = static_dim(x, static_cast<std::int64_t>(i) + 2);
    const auto reach = (w.sizes[i] - 1) * w.dilations[i] + 1;
    const auto room = in + w.pad_low[i] + w.pad_high[i] - reach;
    if (room < 0 || room % w.strides[i] == 0) continue;
    const auto count = room / w.strides[i] + 1;
    if (count * w.strides[i] >= in + w.pad_low[i]) continue;
    w.overhang[i] = w.strides[i] - room % w.strides[i];
    w.pad_high[i] += w.overhang[i];
  }
}

void check(const Windows& w) {
  const std::size_t spatial = w.sizes.size();
  for (const Axes* list : {&w.strides, &w.dilations, &w.pad_low, &w.pad_high}) {
    if (list->size() != spatial) fail("Its attributes do not fit ({}) spatial axes.", spatial);
  }
  const auto small = [](std::int64_t value) { return value > (std::int64_t{1} << 31); };
  for (std::size_t i = 0; i < spatial; ++i) {
    if (w.sizes[i] <= 0 || w.strides[i] <= 0 || w.dilations[i] <= 0) {
      fail("Window ({}), stride ({}) and dilation ({}) must be positive.", w.sizes[i], w.strides[i],
           w.dilations[i]);
    }
    if (small(w.sizes[i]) || small(w.strides[i]) || small(w.dilations[i]) || small(w.pad_low[i]) ||
        small(w.pad_high[i])) {
      fail("A window attribute is too large.");
    }
  }
}

}  // namespace

Windows windows_of(NodeContext& c, const Value& x, const Shape& window, Padding kind) {
  Windows w;
  if (x.rank() < 3) fail("It takes [N,C,...], not {}.", x.type().text());
  const auto spatial = static_cast<std::size_t>(x.rank() - 2);
  if (window.size() != spatial + 2) {
    fail("A window of ({}) axes does not fit {}.", window.size() - 2, x.type().text());
  }
  w.sizes = c.integers("kernel_shape");
  if (w.sizes.empty()) {
    for (std::size_t i = 2; i < window.size(); ++i) {
      if (!window[i].is_static()) fail_unsupported("The window's size must be known.");
      w.sizes.push_back(window[i].value());
    }
  }
  if (w.sizes.size() != spatial) fail("A window of ({}) axes does not fit.", w.sizes.size());
  w.strides = c.integers("strides", Axes(spatial, 1));
  w.dilations = c.integers("dilations", Axes(spatial, 1));
  const Axes pads = c.integers("pads", Axes(2 * spatial, 0));
  if (pads.size() != 2 * spatial) fail("There are ({}) pads.", pads.size());
  w.pad_low.assign(pads.begin(), pads.begin() + static_cast<std::ptrdiff_t>(spatial));
  w.pad_high.assign(pads.begin() + static_cast<std::ptrdiff_t>(spatial), pads.end());
  w.overhang.assign(spatial, 0);
  check(w);
  const std::string automatic = c.text("auto_pad", "NOTSET");
  if (automatic == "SAME_UPPER" || automatic == "SAME_LOWER") {
    if (kind != Padding::transposed) pad_same(w, x, automatic == "SAME_UPPER");
  } else if (automatic == "VALID") {
    w.pad_low.assign(spatial, 0);
    w.pad_high.assign(spatial, 0);
  } else if (automatic != "NOTSET" && !automatic.empty()) {
    fail("The padding ({}) is unknown.", automatic);
  }
  if (kind == Padding::pool && c.flag("ceil_mode")) pad_for_ceil(w, x);
  return w;
}

Value average_with_padding(NodeContext& c, const Value& x, const Windows& w) {
  op::WindowReduce attributes{Reduction::mean, w.sizes,    w.strides,
                              w.pad_low,       w.pad_high, w.dilations};
  const bool even = std::all_of(w.overhang.begin(), w.overhang.end(),
                                [](std::int64_t overhang) { return overhang == 0; });
  if (even) {
    attributes.count_include_pad = true;
    return c.add(attributes, {x});
  }
  // The padding becomes part of x, then only what lies inside counts.
  Axes low(static_cast<std::size_t>(x.rank()), 0), high = low;
  for (std::size_t i = 0; i < w.sizes.size(); ++i) {
    low[i + 2] = w.pad_low[i];
    high[i + 2] = w.pad_high[i] - w.overhang[i];
  }
  attributes.pad_low.assign(w.sizes.size(), 0);
  attributes.pad_high = w.overhang;
  return c.add(attributes, {pad(x, low, high)});
}

}  // namespace rlx::onnx
