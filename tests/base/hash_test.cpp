// Hashes against published vectors, and independence of how the bytes are cut.
#include "base/hash.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace rlx {
namespace {

std::vector<std::byte> ramp(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i % 251);
  return bytes;
}

TEST(Hash, digest_is_blake2b_256) {
  EXPECT_EQ(digest("").hex(), "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8");
  EXPECT_EQ(digest("abc").hex(),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  EXPECT_EQ(digest(std::string(128, 'x')).hex(),
            "164ffb7089bae6f5a62fb0795e751dc9e88eac92e1a5b2fafe93a25abf2d9c3b");
  EXPECT_EQ(digest(ramp(1000)).hex(),
            "b372d0608f720c8c3dd41e9c8eecb10143b41abe520b616607e754bf79c08331");
}

TEST(Hash, pieces_do_not_matter_but_fields_do) {
  const auto bytes = ramp(700);
  for (const std::size_t piece : {1, 3, 64, 127, 128, 129, 500}) {
    Hasher hasher;
    for (std::size_t i = 0; i < bytes.size(); i += piece) {
      hasher.add(std::span(bytes).subspan(i, std::min(piece, bytes.size() - i)));
    }
    EXPECT_EQ(hasher.finish(), digest(bytes)) << piece;
  }
  EXPECT_NE(Hasher().add_field("ab").add_field("c").finish(),
            Hasher().add_field("a").add_field("bc").finish());
}

TEST(Hash, quick_hash_is_xxh64) {
  EXPECT_EQ(quick_hash(""), 0xef46db3751d8e999);
  EXPECT_EQ(quick_hash("a"), 0xd24ec4f1a98c6e5b);
  EXPECT_EQ(quick_hash("abc"), 0x44bc2cf5ad770999);
  EXPECT_EQ(quick_hash("Nobody inspects the spammish repetition"), 0xfbcea83c8a378bf1);
}

}  // namespace
}  // namespace rlx
