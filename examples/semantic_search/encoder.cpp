// Batches of sentences of like length, padded to a few lengths so that few programs are compiled.
#include "semantic_search/encoder.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace semantic_search {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr std::size_t batch_max = 16;

/// Sequences are padded to a multiple of this.
constexpr std::size_t length_step = 16;

/// What the model reads for one batch: ids, 1 for every token, and the only segment, 0.
struct Batch {
  rlx::Tensor ids, mask, segments;
};

Batch make_batch(const std::vector<Tokens>& tokens, const std::vector<std::size_t>& rows) {
  std::size_t length = 0;
  for (const std::size_t row : rows) length = std::max(length, tokens[row].size());
  length = (length + length_step - 1) / length_step * length_step;

  std::vector<std::int64_t> ids(rows.size() * length, 0);
  std::vector<std::int64_t> mask(rows.size() * length, 0);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const Tokens& row = tokens[rows[i]];
    const auto start = static_cast<std::ptrdiff_t>(i * length);
    std::copy(row.begin(), row.end(), ids.begin() + start);
    std::fill_n(mask.begin() + start, row.size(), 1);
  }
  const rlx::Dims dims = {static_cast<std::int64_t>(rows.size()),
                          static_cast<std::int64_t>(length)};
  return {rlx::Tensor::of<std::int64_t>(dims, ids), rlx::Tensor::of<std::int64_t>(dims, mask),
          rlx::Tensor(rlx::i64, dims)};
}

}  // namespace

rlx::Result<Encoder> Encoder::load(const std::string& model, const std::string& vocabulary) {
  auto tokenizer = WordPiece::load(vocabulary);
  if (!tokenizer.ok()) return std::move(tokenizer.error());
  auto graph = rlx::import_onnx(model);
  if (!graph.ok()) return std::move(graph.error());
  rlx::Session session(rlx::Device::automatic);
  auto program = session.compile(*graph);
  if (!program.ok()) return std::move(program.error());
  return Encoder(*std::move(tokenizer), *std::move(program));
}

rlx::Result<std::vector<Embedding>> Encoder::embed(const std::vector<std::string>& sentences) {
  std::vector<Tokens> tokens;
  for (const auto& sentence : sentences) tokens.push_back(tokenizer_.encode(sentence));
  std::vector<std::size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return tokens[a].size() < tokens[b].size();
  });

  std::vector<Embedding> embeddings(sentences.size());
  for (std::size_t first = 0; first < order.size(); first += batch_max) {
    const std::size_t last = std::min(first + batch_max, order.size());
    const std::vector<std::size_t> rows(order.begin() + static_cast<std::ptrdiff_t>(first),
                                        order.begin() + static_cast<std::ptrdiff_t>(last));
    const Batch batch = make_batch(tokens, rows);
    auto outputs = program_.run({{"input_ids", batch.ids},
                                 {"attention_mask", batch.mask},
                                 {"token_type_ids", batch.segments}});
    if (!outputs.ok()) return std::move(outputs.error());
    const auto values = (*outputs)["sentence_embedding"].as<float>();
    const std::size_t width = values.size() / rows.size();
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto row = values.subspan(i * width, width);
      embeddings[rows[i]].assign(row.begin(), row.end());
    }
  }
  return embeddings;
}

float similarity(const Embedding& a, const Embedding& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0f);
}

}  // namespace semantic_search
