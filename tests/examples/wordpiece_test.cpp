// The tokenizer of the semantic search: small cases in words, and the stored ids of MiniLM's own.
#include "semantic_search/wordpiece.hpp"

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

namespace semantic_search {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using Ids = std::vector<std::int64_t>;

WordPiece small_vocabulary() {
  return WordPiece::from_tokens({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "run",
                                 "##ning", "##s", "runs", ".", "東", "cafe"})
      .value();
}

std::vector<std::string> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(SplitWords, SplitsAtBlanksAndPunctuation) {
  EXPECT_THAT(split_words("Don't stop,  at 3.5%!"),
              ElementsAre("don", "'", "t", "stop", ",", "at", "3", ".", "5", "%", "!"));
  EXPECT_THAT(split_words("a—b…c"), ElementsAre("a", "—", "b", "…", "c"));
  EXPECT_THAT(split_words("x_y $1 `z` ~"),
              ElementsAre("x", "_", "y", "$", "1", "`", "z", "`", "~"));
}

TEST(SplitWords, LowersAndStripsAccents) {
  EXPECT_THAT(split_words("Naïve CAFÉ Zürich Ångström Đà"),
              ElementsAre("naive", "cafe", "zurich", "angstrom", "đa"));
  EXPECT_THAT(split_words("İstanbul ΣΊΣΥΦΟΣ Ёлка"), ElementsAre("istanbul", "σισυφοσ", "елка"));
  EXPECT_THAT(split_words("e\u0301 ệ"), ElementsAre("e", "e"));
}

TEST(SplitWords, SetsIdeographsApartButNotKana) {
  EXPECT_THAT(split_words("在東京のホテル"), ElementsAre("在", "東", "京", "のホテル"));
}

TEST(SplitWords, DecomposesHangulIntoLetters) {
  EXPECT_THAT(split_words("한"), ElementsAre("\u1112\u1161\u11ab"));
}

TEST(SplitWords, DropsControlCharactersAndBrokenBytes) {
  EXPECT_THAT(split_words(std::string_view("a\0b\u200d\ufffdc\x7f", 11)), ElementsAre("abc"));
  EXPECT_THAT(split_words("a\xff\xc3 b\xe6\x9d"), ElementsAre("a", "b"));
  EXPECT_THAT(split_words("a\u00a0b\u3000c\td\u2028e"), ElementsAre("a", "b", "c", "d", "e"));
}

TEST(SplitWords, NothingGivesNoWords) {
  EXPECT_THAT(split_words(""), IsEmpty());
  EXPECT_THAT(split_words(" \t\n"), IsEmpty());
}

TEST(WordPiece, TakesTheLongestPieceFromTheLeft) {
  const auto tokenizer = small_vocabulary();
  EXPECT_EQ(tokenizer.encode("unaffable"), (Ids{2, 4, 5, 6, 3}));
  EXPECT_EQ(tokenizer.encode("Running runs."), (Ids{2, 7, 8, 10, 11, 3}));
}

TEST(WordPiece, AWordWithAnUnknownRestIsUnknownAsAWhole) {
  EXPECT_EQ(small_vocabulary().encode("unaffableX run"), (Ids{2, 1, 7, 3}));
}

TEST(WordPiece, AnOverlongWordIsUnknown) {
  std::string word = "run";
  for (int i = 0; i < 97; ++i) word += 's';
  EXPECT_EQ(small_vocabulary().encode(word).size(), 2u + 97u);  // "runs" and 96 times "##s"
  EXPECT_EQ(small_vocabulary().encode(word + "s"), (Ids{2, 1, 3}));
}

TEST(WordPiece, CutsAtTheGreatestLength) {
  EXPECT_EQ(small_vocabulary().encode("run run run run", 4), (Ids{2, 7, 7, 3}));
  EXPECT_EQ(small_vocabulary().encode("unaffable", 4), (Ids{2, 4, 5, 3}));
  EXPECT_EQ(small_vocabulary().encode("run run", 4), (Ids{2, 7, 7, 3}));
}

TEST(WordPiece, SpecialTokensInTextAreText) {
  EXPECT_EQ(small_vocabulary().encode("[SEP]"), (Ids{2, 1, 1, 1, 3}));
}

TEST(WordPiece, SaysWhatIsWrongWithAVocabulary) {
  EXPECT_THAT(WordPiece::from_tokens({"[UNK]", "[CLS]"}).error().message,
              HasSubstr("The vocabulary has no token ([SEP])."));
  EXPECT_THAT(WordPiece::load("no/such/vocab.txt").error().message,
              HasSubstr("Cannot read a vocabulary from (no/such/vocab.txt)."));
}

/// RLX_MINILM is a folder with vocab.txt, RLX_MINILM_CASE one with sentences.txt and token_ids.txt.
TEST(WordPiece, GivesTheStoredIdsOfMiniLm) {
  const char* model = std::getenv("RLX_MINILM");
  const char* folder = std::getenv("RLX_MINILM_CASE");
  if (!model || !folder) GTEST_SKIP() << "RLX_MINILM and RLX_MINILM_CASE are not set";
  const auto tokenizer = WordPiece::load(std::string(model) + "/vocab.txt").value();
  const auto sentences = lines_of(std::string(folder) + "/sentences.txt");
  const auto expected = lines_of(std::string(folder) + "/token_ids.txt");
  ASSERT_FALSE(sentences.empty());
  ASSERT_EQ(sentences.size(), expected.size());
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    std::ostringstream text;
    for (const auto id : tokenizer.encode(sentences[i])) {
      text << (text.tellp() > 0 ? " " : "") << id;
    }
    EXPECT_EQ(text.str(), expected[i]) << sentences[i];
  }
}

}  // namespace
}  // namespace semantic_search
