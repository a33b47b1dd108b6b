// Counting n-grams of integers, and features by index.
#include <algorithm>

#include "import/onnx/build.hpp"
#include "import/onnx/families.hpp"

namespace rlx::onnx {
namespace {

// The n-grams of one length: `count` of them, row by row, with their places in the result.
struct Grams {
  std::int64_t length = 1, count = 0;
  Axes items;
  std::size_t first = 0;  ///< position among all n-grams
};

std::vector<Grams> grams_of(NodeContext& c) {
  const Axes pool = c.integers("pool_int64s"), starts = c.integers("ngram_counts");
  const auto low = c.integer("min_gram_length"), high = c.integer("max_gram_length");
  const auto size = static_cast<std::int64_t>(pool.size());
  std::vector<Grams> all;
  std::size_t before = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    const auto begin = starts[i], end = i + 1 < starts.size() ? starts[i + 1] : size;
    const auto length = static_cast<std::int64_t>(i) + 1;
    if (begin < 0 || end < begin || end > size || (end - begin) % length != 0) {
      fail("The pool of ({}) items has no n-grams from ({}) to ({}).", size, begin, end);
    }
    Grams grams{length, (end - begin) / length, Axes(pool.begin() + begin, pool.begin() + end),
                before};
    before += static_cast<std::size_t>(grams.count);
    if (length >= low && length <= high && grams.count > 0) all.push_back(std::move(grams));
  }
  return all;
}

// How often each n-gram stands in the rows of x [N, L], its items `step` apart: f32 [N, count].
Value counts(NodeContext& c, const Value& x, const Grams& grams, std::int64_t step) {
  const auto windows = static_dim(x, 1) - (grams.length - 1) * step;
  if (windows <= 0) return {};
  Value all;
  for (std::int64_t i = 0; i < grams.length; ++i) {
    Axes column;
    for (std::int64_t g = 0; g < grams.count; ++g) {
      column.push_back(grams.items[static_cast<std::size_t>(g * grams.length + i)]);
    }
    const Value items =
        reshape(slice_axis(x, 1, i * step, i * step + windows), {x.shape()[0], windows, 1});
    const Value same = equal(items, c.integers_constant(column));
    all = all ? logical_and(all, same) : same;
  }
  return sum(cast(all, f32), {1});
}

// The numbers of `list` at the n-grams' positions, as a constant.
template <class T>
std::vector<T> part_of(const std::vector<T>& list, const Grams& grams) {
  const auto end = grams.first + static_cast<std::size_t>(grams.count);
  if (end > list.size()) fail("The n-grams want ({}) places and there are ({}).", end, list.size());
  return {list.begin() + static_cast<std::ptrdiff_t>(grams.first),
          list.begin() + static_cast<std::ptrdiff_t>(end)};
}

void tf_idf_vectorizer(NodeContext& c) {
  const Axes places = c.integers("ngram_indexes");
  const auto skips = c.integer("max_skip_count");
  const std::string mode = c.text("mode", "TF");
  if (c.has_attribute("pool_strings")) fail_unsupported("N-grams of texts are not supported.");
  if (places.empty() || *std::min_element(places.begin(), places.end()) < 0 || skips < 0 ||
      skips > 1024) {
    fail("The places of n-grams, or their skips ({}), are wrong.", skips);
  }
  std::vector<double> weights = c.reals("weights");
  if (weights.empty()) weights.assign(places.size(), 1);
  Value x = cast(c.in(0), i64);
  const bool single = x.rank() == 1;
  if (single) x = reshape(x, {1, x.shape()[0]});
  if (x.rank() != 2) fail("It takes rows of items, not {}.", x.type().text());
  const auto size = *std::max_element(places.begin(), places.end()) + 1;
  checked_elements({size}, "The result");
  Value result = broadcast(c.scalar(f32, 0), {x.shape()[0], size});
  for (const Grams& grams : grams_of(c)) {
    Value total;
    for (std::int64_t step = 1; step <= (grams.length == 1 ? 1 : skips + 1); ++step) {
      const Value found = counts(c, x, grams, step);
      if (found) total = total ? total + found : found;
    }
    if (!total) continue;
    if (mode == "IDF") total = min(total, c.scalar(f32, 1));
    if (mode != "TF") total = total * constant_of(c, f32, {grams.count}, part_of(weights, grams));
    const Value index =
        broadcast(c.integers_constant(part_of(places, grams)), {x.shape()[0], grams.count});
    result = c.add(op::ScatterElements{1, ScatterMode::add}, {result, index, total});
  }
  c.set(single ? reshape(result, {size}) : result);
}

// Columns of the last axis by index.
void array_feature_extractor(NodeContext& c) {
  const Value x = c.in(0), indices = c.in(1);
  const Value flat = reshape(indices, {product_of(indices.shape())});
  const Value picked = gather(x, flat, x.rank() - 1);
  c.set(x.rank() == 1 ? unsqueeze_axes(picked, {0}) : picked);
}

// 1 where x exceeds the threshold, else 0.
void binarizer(NodeContext& c) {
  const Value x = c.in(0);
  c.set(cast(greater(x, scalar_like(c, x, c.real("threshold", 0))), x.dtype()));
}

constexpr OpEntry entries[] = {
    {"TfIdfVectorizer", 9, tf_idf_vectorizer},
    {"ArrayFeatureExtractor", 1, array_feature_extractor, "ai.onnx.ml"},
    {"Binarizer", 1, binarizer, "ai.onnx.ml"},
};

}  // namespace

OpEntries text_entries() { return entries; }

}  // namespace rlx::onnx
