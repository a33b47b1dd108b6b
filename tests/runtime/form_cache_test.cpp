// Kept predictions come back as they were stored, and what was damaged does not.
#include "runtime/form_cache.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <string>

#include "base/temporary_folder.hpp"

namespace rlx {
namespace {

PlannedForm form_number(int i) { return {{1000.5 + i, {1 + i, 2, 3, 4000 + i}, 64 * i}, 0.25 * i}; }

void expect_same(const PlannedForm& form, const PlannedForm& wanted) {
  EXPECT_EQ(form.ns, wanted.ns);
  EXPECT_EQ(form.io, wanted.io);
  EXPECT_EQ(form.arena_bytes, wanted.arena_bytes);
  EXPECT_EQ(form.weight_bytes, wanted.weight_bytes);
}

/// A cache with three forms of one program.
class FormCacheTest : public ::testing::Test {
 protected:
  FormCacheTest() { cache().store(keys, forms); }

  FormCache cache(std::uint64_t bytes_limit = FormCache::default_bytes_limit) const {
    return FormCache(CacheFolder::open(folder.path("forms")), bytes_limit);
  }
  std::filesystem::path file() const {
    return std::filesystem::directory_iterator(folder.path("forms"))->path();
  }

  testing::TemporaryFolder folder;
  const std::vector<Digest> keys{digest("one"), digest("two"), digest("three")};
  const std::vector<PlannedForm> forms{form_number(1), form_number(2), form_number(3)};
};

TEST_F(FormCacheTest, gives_back_what_was_stored_together) {
  const auto found = cache().load(keys);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), forms.size());
  for (std::size_t i = 0; i < forms.size(); ++i) expect_same((*found)[i], forms[i]);
  EXPECT_FALSE(cache().load(std::vector{keys[0], keys[1]}));
  EXPECT_FALSE(cache().load(std::vector{keys[1], keys[0], keys[2]}));
  EXPECT_FALSE(cache().load({}));
}

TEST_F(FormCacheTest, takes_nothing_from_a_damaged_file) {
  std::ifstream in(file(), std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  const auto put = [&](const std::string& content) {
    std::ofstream(file(), std::ios::binary) << content;
  };
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 4);
    put(damaged);
    EXPECT_FALSE(cache().load(keys)) << i;
  }
  for (const std::size_t size : {std::size_t{0}, std::size_t{31}, whole.size() - 1}) {
    put(whole.substr(0, size));
    EXPECT_FALSE(cache().load(keys)) << size;
  }
  put(whole + "x");
  EXPECT_FALSE(cache().load(keys));
  cache().store(keys, forms);
  EXPECT_TRUE(cache().load(keys));
}

TEST_F(FormCacheTest, takes_no_figures_that_cannot_be_true) {
  for (const double ns :
       {-1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<PlannedForm> untrue = forms;
    untrue[1].ns = ns;
    cache().store(keys, untrue);
    EXPECT_FALSE(cache().load(keys)) << ns;
  }
}

TEST_F(FormCacheTest, keeps_to_its_limit_and_does_without_a_folder) {
  cache(1).store(keys, forms);
  EXPECT_FALSE(cache().load(keys));
  const FormCache none(Error{ErrorKind::not_available, "There is no folder."});
  none.store(keys, forms);
  EXPECT_FALSE(none.load(keys));
}

}  // namespace
}  // namespace rlx
