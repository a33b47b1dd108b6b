// Generated matrix products of all shapes and types against the oracle.
#include <fmt/format.h>

#include "codegen/host_target.hpp"
#include "codegen/llvm/contraction_plan.hpp"
#include "codegen/machine.hpp"
#include "codegen/pack.hpp"
#include "contraction_fixture.hpp"

namespace rlx::codegen::testing {
namespace {

std::int64_t between(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

TEST(ContractionMatmul, every_small_number_of_rows) {
  for (const Target& target : host_targets()) {
    for (std::int64_t m = 1; m <= 26; ++m) {
      SCOPED_TRACE(m);
      expect_as_interpreted(matmul({.m = m, .n = 48, .k = 37}, target), target, 1e-5, 1);
    }
  }
}

TEST(ContractionMatmul, many_rows_with_a_remainder) {
  for (const Target& target : host_targets()) {
    for (std::int64_t m : {199, 256, 257, 301, 410}) {
      SCOPED_TRACE(m);
      expect_as_interpreted(matmul({.m = m, .n = 64, .k = 5}, target), target, 1e-5, 1);
      for (std::int64_t n : {48, 50}) {
        const MatmulOptions unpacked{.m = m, .n = n, .k = 5, .packed = false};
        expect_as_interpreted(matmul(unpacked, target), target, 1e-5, 2);
      }
    }
  }
}

TEST(ContractionMatmul, workers_share_rows_where_the_matrix_is_smaller) {
  const auto shares_rows = [](const MatmulOptions& options, const Target& target) {
    const loop::Kernel kernel = matmul(options, target);
    const ContractionPlan plan = plan_contraction(std::get<loop::Contraction>(kernel.body), f32,
                                                  f32, PlanMachine(machine_of(target)));
    if (options.k < 100) expect_as_interpreted(kernel, target, 1e-5, 3);
    return plan.rows_outermost;
  };
  for (const Target& target : host_targets()) {
    for (std::int64_t batch : {1, 3}) {
      SCOPED_TRACE(batch);
      for (std::int64_t m : {199, 212, 301}) {
        EXPECT_TRUE(shares_rows({.m = m, .n = 167, .k = 16, .batch = batch}, target));
      }
      // Rows that end with a line: nothing is torn where the columns are shared out.
      EXPECT_FALSE(shares_rows({.m = 31, .n = 176, .k = 36, .batch = batch}, target));
      EXPECT_TRUE(shares_rows({.m = 31, .n = 167, .k = 36, .batch = batch}, target));
      EXPECT_FALSE(shares_rows({.m = 31, .n = 167, .k = 256, .batch = batch}, target));
    }
    // A matrix that L2 does not hold, which halves of the rows walk over; and one that each worker
    // would have to pack.
    EXPECT_TRUE(shares_rows({.m = 900, .n = 800, .k = 800}, target));
    EXPECT_FALSE(shares_rows({.m = 301, .n = 167, .k = 16, .packed = false}, target));
  }
}

TEST(ContractionMatmul, halves_of_the_rows_of_a_long_product) {
  const MatmulOptions options{.m = 400, .n = 250, .k = 700};
  for (const Target& target : host_targets()) {
    const loop::Kernel kernel = matmul(options, target);
    const ContractionPlan plan = plan_contraction(std::get<loop::Contraction>(kernel.body), f32,
                                                  f32, PlanMachine(machine_of(target)));
    EXPECT_TRUE(plan.in_halves);
    expect_as_interpreted(kernel, target, 1e-4, 3);
  }
}

TEST(ContractionMatmul, panels_are_copied_of_rows_far_apart_or_across_lines) {
  const auto copies = [](MatmulOptions options, const Target& target) {
    options.packed = false;
    const loop::Kernel kernel = matmul(options, target);
    if (options.m * options.n * options.k < 10'000'000)
      expect_as_interpreted(kernel, target, 1e-5, 2);
    return plan_contraction(std::get<loop::Contraction>(kernel.body), f32, f32,
                            PlanMachine(machine_of(target)))
               .column_source == ColumnSource::scratch;
  };
  for (const Target& target : host_targets()) {
    EXPECT_TRUE(copies({.m = 100, .n = 1024, .k = 7, .batch = 2}, target));
    EXPECT_TRUE(copies({.m = 100, .n = 1021, .k = 7}, target));
    EXPECT_TRUE(copies({.m = 512, .n = 512, .k = 512}, target));
    // Near rows, or few that read them.
    EXPECT_FALSE(copies({.m = 256, .n = 256, .k = 256}, target));
    EXPECT_FALSE(copies({.m = 100, .n = 512, .k = 20}, target));
    EXPECT_FALSE(copies({.m = 40, .n = 1024, .k = 7}, target));
    EXPECT_EQ(copies({.m = 80, .n = 50, .k = 7}, target), machine_of(target).vector_bytes == 64);
    EXPECT_FALSE(copies({.m = 60, .n = 50, .k = 7}, target));
  }
}

/// Squares of k and columns are turned in registers, the last one over the one before, or what is
/// left element by element.
TEST(ContractionMatmul, columns_along_k_of_every_depth) {
  for (const Target& target : host_targets()) {
    for (std::int64_t k = 3; k <= 36; ++k) {
      SCOPED_TRACE(k);
      MatmulOptions options{.m = 29, .n = k % 2 == 0 ? 64 : 37, .k = k, .packed = false};
      options.transposed_b = true;
      expect_as_interpreted(matmul(options, target), target, 1e-5, 2);
    }
  }
}

/// Behind the last block come the first rows again; whoever asks computes the same.
TEST(ContractionMatmul, rows_of_the_next_block_are_asked_for) {
  for (const Target& target : host_targets()) {
    for (const std::int64_t m : {13, 20, 49}) {
      for (const std::int64_t batch : {1, 3}) {
        const loop::Kernel kernel = matmul({.m = m, .n = 160, .k = 40, .batch = batch}, target);
        const ContractionPlan plan = plan_contraction(std::get<loop::Contraction>(kernel.body), f32,
                                                      f32, PlanMachine(machine_of(target)));
        EXPECT_EQ(plan.asks_for_rows, machine_of(target).large_l2 && !plan.rows_outermost);
        expect_as_interpreted(kernel, target, 1e-5, 2);
      }
    }
  }
}

TEST(ContractionMatmul, results_beyond_the_cache_are_asked_for) {
  const auto asks = [](const MatmulOptions& options, const Target& target) {
    const loop::Kernel kernel = matmul(options, target);
    if (options.k < 100) expect_as_interpreted(kernel, target, 1e-5, 2);
    return plan_contraction(std::get<loop::Contraction>(kernel.body), f32, f32,
                            PlanMachine(machine_of(target)))
        .asks_for_results;
  };
  for (const Target& target : host_targets()) {
    EXPECT_TRUE(asks({.m = 2311, .n = 117, .k = 3}, target));
    EXPECT_TRUE(asks({.m = 5, .n = 60011, .k = 3, .packed = false}, target));
    EXPECT_FALSE(asks({.m = 1311, .n = 112, .k = 3}, target));
    // Rows that end inside of a line, where sums are short.
    EXPECT_TRUE(asks({.m = 1311, .n = 117, .k = 3}, target));
    EXPECT_FALSE(asks({.m = 13, .n = 117, .k = 3}, target));
    EXPECT_FALSE(asks({.m = 1311, .n = 117, .k = 30}, target));
    const bool hides = machine_of(target).registers >= 32;  // the latency behind long sums
    EXPECT_EQ(asks({.m = 2311, .n = 117, .k = 300}, target), !hides);
  }
}

TEST(ContractionMatmul, large_matrices_are_asked_for_a_panel_ahead) {
  for (const Target& target : host_targets()) {
    const auto plan_of = [&](const MatmulOptions& options) {
      const loop::Kernel kernel = matmul(options, target);
      expect_as_interpreted(kernel, target, 1e-5, 4);
      return plan_contraction(std::get<loop::Contraction>(kernel.body), f32, f32,
                              PlanMachine(machine_of(target)));
    };
    for (std::int64_t m : {3, 16, 33}) {
      SCOPED_TRACE(m);
      const ContractionPlan plan = plan_of({.m = m, .n = 487, .k = 161});
      // Narrow registers walk over a panel in several blocks of columns.
      EXPECT_EQ(plan.asking_blocks > 0, plan.panel_width == plan.block_columns);
    }
    EXPECT_EQ(plan_of({.m = 16, .n = 103, .k = 161}).asking_blocks, 0);
    EXPECT_EQ(plan_of({.m = 1, .n = 487, .k = 161}).asking_blocks, 0);
  }
}

/// m rows of k times one column that lies as it is.
loop::Kernel matrix_vector(std::int64_t m, std::int64_t k, const Target& target) {
  loop::Kernel kernel = matmul({.m = m, .n = 1, .k = k, .packed = false}, target);
  auto& c = std::get<loop::Contraction>(kernel.body);
  c.batch_extents.clear(), c.a_batch_strides.clear(), c.b_batch_strides.clear();
  c.stores[0].access.strides = {1, 1};
  return kernel;
}

TEST(ContractionMatmul, long_rows_are_read_a_few_at_a_time) {
  for (const Target& target : host_targets()) {
    for (std::int64_t k : {1023, 1024, 1025, 2048, 3077}) {
      SCOPED_TRACE(k);
      for (std::int64_t m : {16, 37}) {
        const loop::Kernel kernel = matrix_vector(m, k, target);
        const auto& c = std::get<loop::Contraction>(kernel.body);
        const ContractionPlan plan = plan_contraction(c, f32, f32, PlanMachine(machine_of(target)));
        EXPECT_TRUE(is_dots(c, plan, f32, f32));
        EXPECT_EQ(dot_rows_together(plan) < plan.lanes, k >= 1024 && plan.lanes > 4);
        expect_as_interpreted(kernel, target, 1e-5, 5);
      }
    }
  }
}

/// Registers that masks fill in part take rows that are shorter than they.
TEST(ContractionMatmul, short_rows_are_parts_of_registers) {
  for (const Target& target : host_targets()) {
    for (std::int64_t k : {1, 2, 3, 8, 15}) {
      SCOPED_TRACE(k);
      for (std::int64_t m : {16, 37, 256}) {
        const loop::Kernel kernel = matrix_vector(m, k, target);
        const auto& c = std::get<loop::Contraction>(kernel.body);
        const ContractionPlan plan = plan_contraction(c, f32, f32, PlanMachine(machine_of(target)));
        EXPECT_EQ(is_dots(c, plan, f32, f32), k >= (plan.lanes == 16 ? 2 : plan.lanes));
        expect_as_interpreted(kernel, target, 1e-5, 5);
      }
    }
  }
}

TEST(ContractionMatmul, last_registers_that_are_nearly_full) {
  for (const Target& target : host_targets()) {
    for (std::int64_t n : {29, 30, 31, 46, 61}) {
      for (std::int64_t m : {2, 4, 9}) {
        SCOPED_TRACE(::testing::Message() << m << " rows of " << n);
        expect_as_interpreted(matmul({.m = m, .n = n, .k = 20, .batch = 5}, target), target, 1e-5,
                              1);
      }
    }
  }
}

TEST(ContractionMatmul, every_panel_width_and_tail) {
  for (const Target& target : host_targets()) {
    for (std::int32_t width : {16, 32, 48, 64}) {
      for (std::int64_t n : {1, 15, 16, 17, 33, 64, 65, 100, 129}) {
        SCOPED_TRACE(n);
        const auto kernel = matmul({.m = 9, .n = n, .k = 20, .panel_width = width}, target);
        expect_as_interpreted(kernel, target, 1e-5, 1);
      }
    }
  }
}

TEST(ContractionMatmul, few_rows_of_columns_that_are_read_in_place) {
  for (const Target& target : host_targets()) {
    for (const std::int64_t m : {1, 2, 3}) {
      for (const std::int64_t n : {1, 7, 8, 9, 33, 63, 64, 65, 100, 130}) {
        SCOPED_TRACE(n);
        expect_as_interpreted(matmul({.m = m, .n = n, .k = 19, .packed = false}, target), target,
                              1e-5, 2);
      }
    }
  }
}

/// Instructions of AVX2 that store behind a mask take many cycles on some processors.
TEST(ContractionMatmul, known_tails_are_stored_without_masks_of_avx2) {
  if (!generator()) return;
  const auto masked_stores = [&](std::int64_t n) {
    const Target target{Isa::avx2, "", ""};
    const auto code = generator()->generate(matmul({.m = 12, .n = n, .k = 9}, target), target);
    EXPECT_TRUE(code.ok());
    const auto byte = [&](std::size_t at) { return std::to_integer<int>(code->object[at]); };
    int count = 0;  // VMASKMOVPS m256, ymm, ymm: C4, map 2 of opcodes, 32 bytes behind 66, 2E
    for (std::size_t i = 0; i + 4 <= code->object.size(); ++i)
      count += byte(i) == 0xc4 && (byte(i + 1) & 0x1f) == 2 && (byte(i + 2) & 0x87) == 5 &&
               byte(i + 3) == 0x2e;
    return count;
  };
  for (const std::int64_t n : {9, 11, 13, 23, 31}) EXPECT_EQ(masked_stores(n), 0) << n;
}

TEST(ContractionMatmul, last_columns_take_the_registers_that_they_fill) {
  for (const Target& target : host_targets()) {
    const Machine machine = machine_of(target);
    for (const bool packed : {true, false}) {
      for (const std::int64_t n : {2, 3, 6, 7, 8, 9, 13, 24, 30, 34, 40}) {
        SCOPED_TRACE(n);
        const loop::Kernel kernel = matmul({.m = 23, .n = n, .k = 19, .packed = packed}, target);
        expect_as_interpreted(kernel, target, 1e-5, 3);
        expect_as_interpreted(matmul({.m = 23,
                                      .n = n,
                                      .k = 5,
                                      .packed = packed,
                                      .a = DType::i32,
                                      .b = DType::i32,
                                      .accumulator = DType::i32},
                                     target),
                              target, 0, 3);
        if (machine.masks) continue;
        const ContractionPlan plan = plan_contraction(std::get<loop::Contraction>(kernel.body), f32,
                                                      f32, PlanMachine(machine));
        const std::int64_t registers = (plan.column_blocks - 1) * plan.vectors + last_vectors(plan);
        EXPECT_EQ(registers, (n + plan.lanes - 1) / plan.lanes);
        EXPECT_TRUE(plan.vectors == 1 || n > plan.lanes);
      }
    }
  }
}

/// What follows may tell apart sums that differ by rounding alone: a softmax of large numbers does.
TEST(ContractionMatmul, equal_columns_have_equal_sums) {
  if (!generator()) return;
  for (const Target& target : host_targets()) {
    for (const std::int64_t m : {1, 2, 6, 13}) {
      for (const std::int64_t n : {9, 24, 40, 72}) {
        SCOPED_TRACE(fmt::format("m {}, n {} on {}", m, n, name_of(target.isa)));
        constexpr std::int64_t k = 200;
        const loop::Kernel kernel = matmul({.m = m, .n = n, .k = k, .packed = false}, target);
        Buffers buffers = noise_buffers(kernel, 5);
        auto* b = reinterpret_cast<float*>(buffers[1].data());
        for (std::int64_t i = 0; i < k * n; ++i) b[i] = b[i / n * n];
        run_generated(kernel, target, buffers, 5);
        const auto* c = reinterpret_cast<const float*>(buffers[2].data());
        for (std::int64_t i = 0; i < m * n; ++i) ASSERT_EQ(c[i], c[i / n * n]) << i;
      }
    }
  }
}

TEST(ContractionMatmul, every_small_depth) {
  for (const Target& target : host_targets()) {
    for (std::int64_t k : {1, 2, 3, 4, 5, 6, 7, 8, 9, 63, 64, 65, 200}) {
      SCOPED_TRACE(k);
      for (std::int64_t m : {1, 2, 13}) {
        expect_as_interpreted(matmul({.m = m, .n = 70, .k = k}, target), target, 1e-5, 1);
        const MatmulOptions transposed{
            .m = m, .n = 70, .k = k, .packed = false, .transposed_b = true};
        expect_as_interpreted(matmul(transposed, target), target, 1e-5, 1);
      }
    }
  }
}

TEST(ContractionMatmul, random_shapes) {
  std::mt19937 random(11);
  for (std::uint32_t round = 0; round < 60; ++round) {
    MatmulOptions options{.m = between(random, 1, 70),
                          .n = between(random, 1, 70),
                          .k = between(random, 1, 70),
                          .batch = between(random, 1, 4)};
    options.packed = random() % 2 == 0;
    options.transposed_a = random() % 4 == 0;
    options.transposed_b = random() % 2 == 0;
    for (const Target& target : host_targets()) {
      expect_as_interpreted(matmul(options, target), target, 1e-5, round);
    }
  }
}

TEST(ContractionMatmul, element_types) {
  struct Types {
    DType a, b, accumulator;
  };
  for (const Types& types : {Types{f64, f64, f64}, Types{bf16, bf16, f32}, Types{f16, f16, f32},
                             Types{bf16, f32, f32}, Types{f32, f16, f32}, Types{f32, f32, f64},
                             Types{u8, i8, i32}, Types{i8, i8, i32}, Types{u8, u8, i32}}) {
    SCOPED_TRACE(std::string(name_of(types.a)) + " x " + std::string(name_of(types.b)));
    for (const Target& target : host_targets()) {
      MatmulOptions options{.m = 13, .n = 45, .k = 39, .batch = 2};
      options.a = types.a;
      options.b = types.b;
      options.accumulator = types.accumulator;
      expect_as_interpreted(matmul(options, target), target, 1e-5, 1);
      options.packed = false;
      expect_as_interpreted(matmul(options, target), target, 1e-5, 2);
      options.transposed_b = true;
      expect_as_interpreted(matmul(options, target), target, 1e-5, 3);
    }
  }
}

TEST(ContractionMatmul, bytes_are_multiplied_exactly) {
  std::mt19937 random(17);
  for (std::uint32_t round = 0; round < 20; ++round) {
    MatmulOptions options{.m = between(random, 1, 20),
                          .n = between(random, 1, 70),
                          .k = between(random, 1, 70),
                          .batch = between(random, 1, 2)};
    options.a = random() % 2 == 0 ? u8 : i8;
    options.b = random() % 2 == 0 ? u8 : i8;
    options.accumulator = i32;
    options.packed = random() % 3 == 0;
    options.transposed_a = random() % 4 == 0;
    options.transposed_b = random() % 2 == 0;
    for (const Target& target : host_targets()) {
      SCOPED_TRACE(round);
      expect_as_interpreted(matmul(options, target), target, 0, round);
    }
  }
}

TEST(ContractionMatmul, empty_domains_write_nothing) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(matmul({.m = 0, .n = 8, .k = 4}, target), target, 1e-5, 1);
    expect_as_interpreted(matmul({.m = 4, .n = 8, .k = 4, .batch = 0}, target), target, 1e-5, 1);
  }
}

TEST(ContractionMatmul, depth_zero_gives_zeros) {
  for (const Target& target : host_targets()) {
    expect_as_interpreted(matmul({.m = 4, .n = 8, .k = 0}, target), target, 1e-5, 1);
  }
}

TEST(ContractionMatmul, complex_elements_are_refused) {
  const Target target = host_targets().back();
  loop::Kernel kernel = matmul({.m = 4, .n = 8, .k = 4}, target);
  kernel.buffers[0].dtype = c64;
  const auto code = generator()->generate(kernel, target);
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(code.error().message, "A contraction of (c64 and f32) has no generated code.");
}

TEST(ContractionMatmul, the_same_kernel_gives_the_same_bytes) {
  const Target target = host_targets().back();
  const loop::Kernel kernel = matmul({.m = 33, .n = 70, .k = 40}, target);
  EXPECT_EQ(generator()->generate(kernel, target)->object,
            generator()->generate(kernel, target)->object);
}

TEST(Pack, any_strides_and_batches) {
  std::vector<float> source(2 * 5 * 7 * 40);
  for (std::size_t i = 0; i < source.size(); ++i) source[i] = static_cast<float>(i + 1);
  // Element (batch, k0, k1, n) of weights that lie as [batch][n][k1][k0].
  PackSource from{.data = source.data(),
                  .offset = 0,
                  .batches = 2,
                  .batch_stride = 40 * 35,
                  .k_extents = {5, 7},
                  .k_strides = {1, 5},
                  .n_stride = 35};
  const PackedLayout layout{40, 35, 48, f32};
  ASSERT_EQ(packed_bytes(layout, 2), 2U * 35 * 48 * 4);
  std::vector<float> packed(2 * 35 * 48, -1.0F);
  pack(from, layout, packed.data());
  for (std::int64_t batch = 0; batch < 2; ++batch) {
    for (std::int64_t k = 0; k < 35; ++k) {
      for (std::int64_t n = 0; n < 48; ++n) {
        const std::int64_t at = batch * 40 * 35 + n * 35 + k / 7 + (k % 7) * 5;
        EXPECT_EQ(packed[(batch * 35 + k) * 48 + n], n < 40 ? source[at] : 0.0F);
      }
    }
  }
}

TEST(Pack, panels_suit_the_columns) {
  const Target wide{Isa::avx512, "", ""};
  const auto width = [&](std::int64_t n) {
    return choose_packed_layout(n, 1, f32, wide).panel_width;
  };
  EXPECT_EQ(width(8), 16);
  EXPECT_EQ(width(32), 32);
  EXPECT_EQ(width(96), 48);
  EXPECT_EQ(width(1024), 64);
  EXPECT_EQ(choose_packed_layout(1000, 1, f32, Target{}).panel_width, 16);
  // Deep panels that several blocks of rows walk over are narrow where L2 is large.
  const Target rapids{Isa::avx512, "", "+avx512bf16,+avx512fp16"};
  const auto of_rows = [](std::int64_t rows, std::int64_t k, const Target& target) {
    return choose_packed_layout(1024, k, f32, target, rows).panel_width;
  };
  EXPECT_EQ(of_rows(49, 2304, rapids), 64);
  EXPECT_EQ(of_rows(49, 4608, rapids), 32);
  EXPECT_EQ(of_rows(16, 9216, rapids), 16);
  EXPECT_EQ(of_rows(6, 9216, rapids), 64);
  EXPECT_EQ(of_rows(49, 9216, wide), 64);
  EXPECT_EQ(choose_packed_layout(1024, 9216, bf16, rapids, 49).panel_width, 64);
}

}  // namespace
}  // namespace rlx::codegen::testing
