// Random nets: whatever the instruction set, the threads, the fusion and the algorithms, they give
// what the reference gives. RLX_RANDOM_NETS=FIRST-LAST takes other seeds than the suite's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <ostream>

#include "../base/fenced_memory.hpp"
#include "../base/temporary_folder.hpp"
#include "../ops/sample_inputs.hpp"
#include "codegen/host_target.hpp"
#include "cost/calibration.hpp"
#include "random_nets.hpp"
#include "rlx/calibration.hpp"

namespace rlx::testing {
namespace {

/// A way to compile a net.
struct Way {
  const char* isa = nullptr;  ///< as RLX_ISA has it; null: the machine's widest
  int threads = 1;
  bool disable_fusion = false, exact = false;
  Precision precision = Precision::f32;

  std::string name() const {
    return std::string(isa ? isa : "widest") + "_on_" + std::to_string(threads) +
           (disable_fusion ? "_without_fusion" : "") + (exact ? "_exact" : "") +
           (precision == Precision::f32 ? "" : "_in_" + std::string(name_of(precision)));
  }
};

void PrintTo(const Way& way, std::ostream* out) { *out << way.name(); }

/// A session of such a way, on a machine whose teams cost little, so that small nets are shared
/// out, too. Sessions read the environment when they compile first.
class SessionOf {
 public:
  explicit SessionOf(const Way& way) : way_(way), session_(Device::cpu, {.threads = way.threads}) {
    const Environment environment(*this);
    const auto target = codegen::host_target();
    if (!target.ok()) return;
    auto impl = std::make_shared<Calibration::Impl>();
    impl->model = cost::preset_for(codegen::host_cpu(), *target);
    impl->model.barrier /= cheaper;
    impl->model.team /= cheaper;
    impl->date = "2026-01-01T00:00:00Z";
    impl->generator = "LLVM";
    impl->threads = cost::cpu_identity().value().threads;
    impl->gemms = {{f32, 64, 64, 64, 1, 100}, {f32, 512, 512, 512, impl->threads, 200}};
    const auto path = Calibration(impl).save();
    EXPECT_TRUE(path.ok()) << path.error().message;
    const auto used = Calibration::load();
    EXPECT_TRUE(used.ok()) << used.error().message;
    available_ = true;
  }

  /// Whether the machine has the instruction set.
  bool available() const { return available_; }

  Result<CompiledGraph> compile(const Graph& graph, std::map<std::string, bool> answers = {}) {
    const Environment environment(*this);
    return session_.compile(graph, {.precision = way_.precision,
                                    .exact = way_.exact,
                                    .disable_fusion = way_.disable_fusion,
                                    .answers = std::move(answers),
                                    .threads = way_.threads});
  }

 private:
  static constexpr double cheaper = 15;  // calibrations further from the preset are not trusted
  struct Environment {
    explicit Environment(const SessionOf& session)
        : cache("RLX_CACHE_DIR", session.folder_.path().c_str()),
          isa("RLX_ISA", session.way_.isa) {}
    ScopedVariable cache, isa;
  };

  Way way_;
  TemporaryFolder folder_;
  Session session_;
  bool available_ = false;
};

double root_mean_square(std::span<const float> values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares / static_cast<double>(std::max<std::size_t>(1, values.size())));
}

/// In f32 no element is off by more than a thousandth of itself and of the values' usual size. What
/// rounded operands do to a single element depends on the layers (a norm over two channels gives
/// signs): in lower precision differences are small beside the values, taken all together.
void expect_near(const Tensor& found, const Tensor& wanted, Precision precision) {
  ASSERT_EQ(found.dims(), wanted.dims());
  const auto a = found.as<float>(), b = wanted.as<float>();
  const double usual = root_mean_square(b);
  std::vector<float> differences(b.size());
  for (std::size_t i = 0; i < b.size(); ++i) {
    differences[i] = a[i] - b[i];
    if (precision != Precision::f32) continue;
    ASSERT_NEAR(a[i], b[i], 1e-3 * (std::abs(b[i]) + usual) + 1e-6)
        << "element " << i << " of " << b.size();
  }
  const double allowed = precision == Precision::int8   ? 0.3
                         : precision == Precision::bf16 ? 0.1
                                                        : 0.02;
  EXPECT_LE(root_mean_square(differences), allowed * usual + 1e-6);
}

struct Seeds {
  unsigned first, last;
};
Seeds seeds(NetSize size) {
  const char* const text = std::getenv("RLX_RANDOM_NETS");
  if (!text) return size == NetSize::small ? Seeds{1, 40} : Seeds{1010, 1021};
  char* rest = nullptr;
  const auto first = static_cast<unsigned>(std::strtoul(text, &rest, 10));
  return {first, *rest == '-' ? static_cast<unsigned>(std::strtoul(rest + 1, nullptr, 10)) : first};
}

using Inputs = std::vector<std::pair<std::string, Tensor>>;
using Reference = std::function<std::vector<Tensor>(const Graph&, const Inputs&)>;

Inputs inputs_of(const Graph& graph, unsigned seed) {
  std::mt19937 generator(seed);
  Inputs inputs;
  for (const Node& node : graph.nodes()) {
    if (const auto* input = node.op.as<op::Input>())
      inputs.emplace_back(input->name, noise(node.results[0], -1.7, 1.7, generator));
  }
  return inputs;
}

/// The same from and into memory of the caller's beside which nothing may be touched.
void expect_in_fences(CompiledGraph& program, const Inputs& inputs,
                      const std::vector<Tensor>& wanted, Fence fence) {
  std::vector<FencedMemory> memory;
  std::vector<const void*> from;
  std::vector<void*> into;
  for (const auto& [name, tensor] : inputs) {
    memory.emplace_back(std::span(tensor.data(), tensor.bytes()), fence);
    from.push_back(memory.back().data());
  }
  for (const Tensor& tensor : wanted) {
    memory.emplace_back(tensor.bytes(), fence);
    into.push_back(memory.back().data());
  }
  const Status status = program.run_into(from, into);
  ASSERT_TRUE(status) << status.error().message;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(std::memcmp(into[i], wanted[i].data(), wanted[i].bytes()), 0) << "output " << i;
}

std::vector<Tensor> results_of(CompiledGraph& program, const Inputs& inputs) {
  std::vector<NamedInput> named;
  for (const auto& [name, tensor] : inputs) named.emplace_back(name, tensor);
  const Outputs outputs = program.run(named).value();
  std::vector<Tensor> results;
  for (const auto& [name, tensor] : outputs.items) results.push_back(tensor);
  for (const Fence fence : {Fence::behind, Fence::before})
    expect_in_fences(program, inputs, results, fence);
  return results;
}

std::vector<Tensor> evaluated(const Graph& graph, const Inputs& inputs) {
  std::vector<Tensor> values;
  for (const auto& [name, tensor] : inputs) values.push_back(tensor);
  return evaluate_graph(graph, values).value();
}

/// One kernel for each op, in plain code.
constexpr Way plain{"portable", 1, true, true};

void expect_near(const std::vector<Tensor>& found, const std::vector<Tensor>& wanted,
                 Precision precision) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    SCOPED_TRACE("output " + std::to_string(i));
    expect_near(found[i], wanted[i], precision);
  }
}

/// The questions that the program's planner asked, some of them, with the other answer each.
std::vector<std::pair<std::string, bool>> other_answers(const CompiledGraph& program,
                                                        unsigned seed) {
  constexpr std::size_t most = 4;
  std::vector<std::pair<std::string, bool>> answers;
  const Explanation explanation = program.explain().value();
  for (const FusionQuestion& question : explanation.questions)
    answers.emplace_back(question.what, !question.fused);
  std::mt19937 generator(seed);
  std::ranges::shuffle(answers, generator);
  answers.resize(std::min(answers.size(), most));
  return answers;
}

void expect_as(const Reference& reference, const Way& way, NetKind kind, NetSize size) {
  SessionOf session(way);
  if (!session.available()) GTEST_SKIP() << "This machine lacks the instruction set.";
  const auto [first, last] = seeds(size);
  for (unsigned seed = first; seed <= last; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_net(kind, size, seed);
    const Inputs inputs = inputs_of(graph, seed);
    const std::vector<Tensor> wanted = reference(graph, inputs);
    CompiledGraph program = session.compile(graph).value();
    expect_near(results_of(program, inputs), wanted, way.precision);
    for (const auto& answer : other_answers(program, seed)) {
      SCOPED_TRACE(answer.first + (answer.second ? ": yes" : ": no"));
      // Another answer may lead to another plan that does not ask this.
      auto other = session.compile(graph, {answer});
      if (other.ok()) expect_near(results_of(*other, inputs), wanted, way.precision);
    }
  }
}

class RandomNets : public ::testing::TestWithParam<Way> {};

TEST_P(RandomNets, OfImagesAreAsEvaluated) {
  expect_as(evaluated, GetParam(), NetKind::image, NetSize::small);
}

TEST_P(RandomNets, OfSequencesAreAsEvaluated) {
  expect_as(evaluated, GetParam(), NetKind::sequence, NetSize::small);
}

constexpr Way all_ways[] = {{nullptr, 1},
                            {nullptr, 2},
                            {nullptr, 2, true},
                            {"avx2", 2},
                            {"portable", 2},
                            {.threads = 2, .precision = Precision::bf16},
                            {.threads = 2, .precision = Precision::f16},
                            {.threads = 2, .precision = Precision::int8},
                            plain};

/// Large ones beside plain code, of which the tests above say that it is right.
class LargeRandomNets : public ::testing::TestWithParam<Way> {
 protected:
  Reference by_plain_code() {
    return [this](const Graph& graph, const Inputs& inputs) {
      CompiledGraph program = plain_session_.compile(graph).value();
      return results_of(program, inputs);
    };
  }

 private:
  SessionOf plain_session_{plain};
};

TEST_P(LargeRandomNets, OfImagesAreAsPlainCodeHasThem) {
  expect_as(by_plain_code(), GetParam(), NetKind::image, NetSize::large);
}

TEST_P(LargeRandomNets, OfSequencesAreAsPlainCodeHasThem) {
  expect_as(by_plain_code(), GetParam(), NetKind::sequence, NetSize::large);
}

const auto name_of_way = [](const ::testing::TestParamInfo<Way>& info) {
  return info.param.name();
};
INSTANTIATE_TEST_SUITE_P(EveryWay, RandomNets, ::testing::ValuesIn(all_ways), name_of_way);
INSTANTIATE_TEST_SUITE_P(EveryWay, LargeRandomNets,
                         ::testing::ValuesIn(std::begin(all_ways), std::end(all_ways) - 1),
                         name_of_way);

}  // namespace
}  // namespace rlx::testing
