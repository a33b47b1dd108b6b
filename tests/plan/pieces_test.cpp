// Memory in pieces: small buffers have their own, and each place of a buffer is found.
#include "plan/pieces.hpp"

#include <gtest/gtest.h>

namespace rlx::plan {
namespace {

BufferPlan buffer_at(std::int64_t offset, std::int64_t elements, Storage storage) {
  BufferPlan buffer;
  buffer.dtype = f32;
  buffer.elements = elements;
  buffer.storage = storage;
  buffer.offset = offset;
  return buffer;
}

/// A large buffer, a small one that lies in the middle of its place at another time, and weights.
Plan example() {
  Plan plan;
  plan.arena_bytes = 64 << 10;
  plan.buffers = {buffer_at(0, 16 << 10, Storage::arena), buffer_at(20032, 24, Storage::arena),
                  buffer_at(0, 3000, Storage::weight), buffer_at(0, 10, Storage::weight)};
  return plan;
}

TEST(Pieces, SmallBuffersHaveTheirOwn) {
  const Plan plan = example();
  const Pieces pieces(plan);
  const Pieces::Range small = pieces.of(1), large = pieces.of(0);
  EXPECT_EQ(small.last - small.first, 1u);
  EXPECT_EQ(pieces.bytes_of(small), 128);  // whole lines
  EXPECT_EQ(pieces.bytes_of(large), 64 << 10);
  EXPECT_LE(large.first, small.first);
  EXPECT_GE(large.last, small.last);
  EXPECT_EQ(pieces.bytes_of(pieces.of(2)), 12000);
  EXPECT_EQ(pieces.bytes_of(pieces.of(3)), 40);
}

TEST(Pieces, EveryPlaceIsFound) {
  const Plan plan = example();
  const Pieces pieces(plan);
  for (std::int32_t buffer = 0; buffer < 4; ++buffer) {
    const Pieces::Range all = pieces.of(buffer);
    const std::int64_t bytes = plan.buffers[static_cast<std::size_t>(buffer)].bytes();
    double before = 0;
    for (std::size_t piece = all.first; piece < all.last; ++piece) {
      EXPECT_EQ(pieces.at(buffer, before), piece);
      before += pieces.bytes()[piece];
      EXPECT_EQ(pieces.at(buffer, before - 1), piece);
    }
    EXPECT_GE(before, static_cast<double>(bytes));
    EXPECT_EQ(pieces.at(buffer, before), all.last);
  }
}

TEST(Pieces, PartsOfABuffer) {
  const Plan plan = example();
  const Pieces pieces(plan);
  const Pieces::Range part = pieces.part_of(0, {4096, 6143}, f32);  // bytes 16384 to 24575
  EXPECT_EQ(pieces.bytes_of(part), 8192);
  const Pieces::Range all = pieces.of(0), none = pieces.part_of(0, {1, 0}, f32);
  EXPECT_EQ(none.first, all.first);
  EXPECT_EQ(none.last, all.last);
}

}  // namespace
}  // namespace rlx::plan
