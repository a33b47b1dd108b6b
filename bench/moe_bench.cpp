// A grouped matmul beside dense products of every expert, and beside one dense product of the same
// FLOPs; and with a part of the experts in memory.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "rlx/rlx.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using rlx::Value;

rlx::Tensor noise(rlx::Dims dims, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(static_cast<std::size_t>(rlx::element_count(dims)));
  for (float& value : values) value = uniform(random);
  return rlx::Tensor::of<float>(std::move(dims), std::span<const float>(values));
}

struct Sizes {
  std::int64_t tokens, experts, choices, depth, columns;
  double rows() const { return static_cast<double>(tokens * choices); }
};

/// Experts by Zipf's law with that exponent; 0: all alike.
std::vector<std::int32_t> choose(const Sizes& s, double exponent) {
  std::vector<double> weights;
  for (std::int64_t e = 0; e < s.experts; ++e)
    weights.push_back(std::pow(static_cast<double>(e + 1), -exponent));
  std::discrete_distribution<std::int32_t> expert(weights.begin(), weights.end());
  std::mt19937 random(3);
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(s.tokens * s.choices));
  for (std::int32_t& each : chosen) each = expert(random);
  return chosen;
}

rlx::Graph grouped(const Sizes& s, const rlx::Tensor& w) {
  rlx::Graph graph;
  const Value x = graph.input("x", rlx::f32, {rlx::Dim(s.tokens), rlx::Dim(s.depth)});
  const Value chosen = graph.input("chosen", rlx::i32, {rlx::Dim(s.tokens), rlx::Dim(s.choices)});
  graph.output("y", rlx::grouped_matmul(x, graph.constant(w), chosen));
  return graph;
}

/// Every expert with all tokens.
rlx::Graph every_expert(const Sizes& s, const rlx::Tensor& w) {
  rlx::Graph graph;
  const Value x = graph.input("x", rlx::f32, {rlx::Dim(s.tokens), rlx::Dim(s.depth)});
  graph.output("y",
               rlx::matmul(rlx::broadcast(x, {s.experts, s.tokens, s.depth}), graph.constant(w)));
  return graph;
}

rlx::Graph one_product(const Sizes& s) {
  rlx::Graph graph;
  const Value x = graph.input("x", rlx::f32, {rlx::Dim(s.tokens * s.choices), rlx::Dim(s.depth)});
  graph.output("y", rlx::matmul(x, graph.constant(noise({s.depth, s.columns}, 5))));
  return graph;
}

struct Contender {
  std::string name;
  rlx::CompiledGraph program;
  std::vector<const void*> slots;
  std::vector<double> us = {};
};

void measure(std::vector<Contender>& contenders) {
  for (Contender& each : contenders) (void)each.program.run_slots(each.slots);
  const auto start = Clock::now();
  for (int round = 0; round < 200 && Clock::now() - start < std::chrono::seconds(2); ++round) {
    for (Contender& each : contenders) {
      const auto before = Clock::now();
      if (!each.program.run_slots(each.slots).ok()) std::abort();
      each.us.push_back(std::chrono::duration<double, std::micro>(Clock::now() - before).count());
    }
  }
}

void compare(rlx::Session& session, const Sizes& s, double exponent) {
  const rlx::Tensor w = noise({s.experts, s.depth, s.columns}, 1),
                    x = noise({s.tokens, s.depth}, 2);
  const rlx::Tensor rows = noise({s.tokens * s.choices, s.depth}, 4);
  const std::vector<std::int32_t> chosen = choose(s, exponent);
  std::vector<Contender> contenders;
  contenders.push_back(
      {"grouped", session.compile(grouped(s, w)).value(), {x.data(), chosen.data()}});
  contenders.push_back({"grouped, 30 % in memory",
                        session.compile(grouped(s, w)).value(),
                        {x.data(), chosen.data()}});
  rlx::ExpertMask mask(static_cast<std::size_t>(s.experts), false);
  std::fill_n(mask.begin(), (s.experts * 3 + 5) / 10, true);
  if (!contenders.back().program.set_moe_resident_experts(mask).ok()) std::abort();
  contenders.push_back({"every expert", session.compile(every_expert(s, w)).value(), {x.data()}});
  contenders.push_back({"one product", session.compile(one_product(s)).value(), {rows.data()}});
  measure(contenders);
  std::printf("%lld tokens, %lld of %lld experts, %lldx%lld, Zipf %.1f\n",
              static_cast<long long>(s.tokens), static_cast<long long>(s.choices),
              static_cast<long long>(s.experts), static_cast<long long>(s.depth),
              static_cast<long long>(s.columns), exponent);
  const double flops = 2 * s.rows() * static_cast<double>(s.depth * s.columns);
  for (Contender& each : contenders) {
    std::sort(each.us.begin(), each.us.end());
    const double median = each.us[each.us.size() / 2];
    std::printf("  %-24s %10.1f us  %7.1f GFLOP/s of the rows chosen\n", each.name.c_str(), median,
                flops / median * 1e-3);
  }
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : 1;
  rlx::Session session(rlx::Device::cpu, {.threads = threads});
  std::printf("%d threads\n", threads);
  compare(session, {1, 8, 2, 512, 1024}, 0);
  compare(session, {32, 8, 2, 512, 1024}, 0);
  compare(session, {256, 8, 2, 512, 1024}, 0);
  compare(session, {256, 32, 4, 512, 512}, 1.2);
}
