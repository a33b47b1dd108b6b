// Layers fall back to smaller forms where all together take too much memory.
#include "runtime/form_memory.hpp"

#include <gtest/gtest.h>

namespace rlx {
namespace {

using Choice = std::vector<std::size_t>;

TEST(FormMemory, WeightsAddUpAndLayersShareTheArena) {
  const FormCosts layers{{{10, 100, 50}, {5, 400, 80}}, {{10, 100, 60}, {5, 300, 30}}};
  EXPECT_EQ(more_memory(layers, {0, 0}), 0);
  EXPECT_EQ(more_memory(layers, {1, 0}), 300 + 20);
  EXPECT_EQ(more_memory(layers, {0, 1}), 200);  // the arena of the first one, 50, is no gain
  EXPECT_EQ(more_memory(layers, {1, 1}), 300 + 200 + 20);
}

TEST(FormMemory, WhatFitsStays) {
  const FormCosts layers{{{10, 100}, {5, 400}}, {{10, 100}, {5, 300}}};
  EXPECT_EQ(within_memory(layers, {1, 1}, 500), (Choice{1, 1}));
}

TEST(FormMemory, GivesUpTheLeastTimeForEachByte) {
  // 5 ns for 300 bytes, 2 for 150.
  const FormCosts layers{{{10, 100}, {5, 400}}, {{10, 100}, {8, 250}}};
  EXPECT_EQ(within_memory(layers, {1, 1}, 449), (Choice{1, 0}));
  EXPECT_EQ(within_memory(layers, {1, 1}, 299), (Choice{0, 0}));
}

TEST(FormMemory, FallsBackStepByStep) {
  const FormCosts layers{{{10, 100}, {6, 200}, {5, 400}}};
  EXPECT_EQ(within_memory(layers, {2}, 299), (Choice{1}));
  EXPECT_EQ(within_memory(layers, {2}, 99), (Choice{0}));
}

TEST(FormMemory, TheLargestArenaIsGivenUpForItself) {
  const FormCosts layers{{{10, 100, 0}, {5, 110, 900}}, {{10, 100, 0}, {5, 400, 100}}};
  EXPECT_EQ(within_memory(layers, {1, 1}, 500), (Choice{0, 1}));
}

TEST(FormMemory, NothingFallsBackToWhatCannotBePlanned) {
  const FormCosts layers{{{10, 100}, {}, {5, 400}}, {{}, {}}};
  EXPECT_EQ(within_memory(layers, {2, 0}, 250), (Choice{0, 0}));
  const FormCosts none{{{}, {5, 400}}};
  EXPECT_EQ(within_memory(none, {1}, 250), (Choice{1}));
}

}  // namespace
}  // namespace rlx
