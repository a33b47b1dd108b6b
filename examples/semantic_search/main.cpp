// Finds the sentences that are nearest in meaning to a question.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <numeric>

#include "semantic_search/encoder.hpp"

namespace semantic_search {
namespace {

constexpr int exit_usage = 2, exit_bad_input = 3;

struct Options {
  std::string model, vocabulary, query, file;
  std::vector<std::string> sentences;
  std::size_t top = 3;
  bool matrix = false;
};

/// Appends the lines that are not blank.
void read_lines(std::istream& stream, std::vector<std::string>& lines) {
  for (std::string line; std::getline(stream, line);) {
    if (line.find_first_not_of(" \t\r") != std::string::npos) lines.push_back(line);
  }
}

/// Sentences from the arguments, from --file, or else from standard input.
rlx::Result<std::vector<std::string>> collect_sentences(const Options& options) {
  auto sentences = options.sentences;
  if (!options.file.empty()) {
    std::ifstream file(options.file);
    if (!file) {
      return rlx::Error{rlx::ErrorKind::bad_input, "Cannot read the file (" + options.file + ")."};
    }
    read_lines(file, sentences);
  } else if (sentences.empty()) {
    if (isatty(STDIN_FILENO)) std::fputs("Sentences, one a line, then Ctrl-D:\n", stderr);
    read_lines(std::cin, sentences);
  }
  if (sentences.empty()) {
    return rlx::Error{rlx::ErrorKind::bad_input, "There are no sentences to search."};
  }
  return sentences;
}

void print_matrix(const std::vector<Embedding>& embeddings) {
  for (const auto& a : embeddings) {
    const char* gap = "";
    for (const auto& b : embeddings) {
      std::printf("%s%.4f", gap, static_cast<double>(similarity(a, b)));
      gap = " ";
    }
    std::printf("\n");
  }
}

void print_nearest(const std::vector<std::string>& sentences,
                   const std::vector<Embedding>& embeddings, const Embedding& query,
                   std::size_t top) {
  std::vector<std::size_t> order(sentences.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<float> scores;
  for (const auto& embedding : embeddings) scores.push_back(similarity(embedding, query));
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] > scores[b]; });
  for (std::size_t i = 0; i < std::min(top, order.size()); ++i) {
    std::printf("%.4f  %s\n", static_cast<double>(scores[order[i]]), sentences[order[i]].c_str());
  }
}

rlx::Status search(const Options& options) {
  auto sentences = collect_sentences(options);
  if (!sentences.ok()) return std::move(sentences.error());
  auto encoder = Encoder::load(options.model, options.vocabulary);
  if (!encoder.ok()) return std::move(encoder.error());

  auto all = *sentences;
  if (!options.query.empty()) all.push_back(options.query);
  auto embeddings = encoder->embed(all);
  if (!embeddings.ok()) return std::move(embeddings.error());

  Embedding query;
  if (!options.query.empty()) {
    query = std::move(embeddings->back());
    embeddings->pop_back();
  }
  if (options.matrix) print_matrix(*embeddings);
  if (!options.query.empty()) print_nearest(*sentences, *embeddings, query, options.top);
  return {};
}

int run(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Finds the sentences nearest in meaning to a question. Sentences come from the "
      "arguments, from --file, or from standard input, one a line.");
  app.add_option("--model", options.model, "sentence encoder, ONNX")->required();
  app.add_option("--vocabulary", options.vocabulary, "its vocab.txt")->required();
  app.add_option("--file", options.file, "file of sentences, one a line");
  app.add_option("--query", options.query, "the question");
  app.add_option("--top", options.top, "how many sentences to print")->capture_default_str();
  app.add_flag("--matrix", options.matrix, "print the similarity of every two sentences");
  app.add_option("sentences", options.sentences, "the sentences");
  try {
    app.parse(argc, argv);
    if (options.query.empty() && !options.matrix) {
      throw CLI::ValidationError("give a --query, or --matrix");
    }
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : exit_usage;
  }
  const auto status = search(options);
  if (status.ok()) return 0;
  std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
  return exit_bad_input;
}

}  // namespace
}  // namespace semantic_search

int main(int argc, char** argv) {
  try {
    return semantic_search::run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return semantic_search::exit_bad_input;
  }
}
