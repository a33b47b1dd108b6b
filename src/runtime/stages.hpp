// Programs whose shapes data decides: the part that is known runs, its values bind the part after,
// which is compiled once for each new set of dims and kept.
#pragma once

#include <atomic>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/compile.hpp"

namespace rlx {

class Stage {
 public:
  /// `graph` is specialised as far as its inputs' dims tell. Runs end with the error `cancelled`
  /// once the flag is set.
  static Result<std::unique_ptr<Stage>> make(Backend& backend, Graph graph,
                                             const CompileOptions& options,
                                             const std::map<std::string, Tensor>& params,
                                             std::shared_ptr<const std::atomic<bool>> cancel_flag);

  /// The outputs in the graph's order, from the inputs by name.
  Result<std::vector<Tensor>> run(const std::map<std::string, Tensor>& inputs);

  /// Why the program splits after this stage; empty where it does not.
  const std::string& reason() const { return reason_; }
  const StaticProgram& program() const { return program_; }
  /// The parts that the last run went through, in order, this one first.
  std::vector<const Stage*> parts() const;
  /// What is evaluated on the host behind this part, before the dims of the next one are known.
  struct HostNode {
    std::string op;
    double bytes = 0;  ///< read: how much comes of it only data tells
    double predicted_ns = 0;
  };
  std::vector<HostNode> host_nodes() const;
  /// What each kernel takes in us, the median of `runs` runs on these inputs, and then each host
  /// node: of this part and all behind it.
  Result<std::vector<double>> time_steps(const std::map<std::string, Tensor>& inputs, int runs);
  Status set_param(const std::string& name, const Tensor& value);

 private:
  using Named = std::map<std::string, Tensor>;

  void find_split();
  /// The name under which a value is handed to the next stage.
  std::string carried_name(ValueId id) const;
  Result<Graph> part_before() const;
  Result<Stage*> next_for(const Named& values);
  Result<Named> run_program(const Named& inputs);
  std::vector<const void*> slots_of(const Named& inputs) const;
  Result<std::vector<Tensor>> evaluate_host_node(std::int32_t index, const Named& values) const;
  Result<Named> evaluate_host_nodes(const Named& values) const;
  Result<Tensor> value_of(ValueId id, const Named& values) const;
  Result<Graph> part_after(const Named& values) const;
  bool decides_anything() const;
  std::string key_of(const Named& values) const;

  Backend* backend_ = nullptr;
  std::shared_ptr<const std::atomic<bool>> cancel_flag_;
  CompileOptions options_;
  Graph graph_;
  StaticProgram program_;
  std::string reason_;
  std::string carried_;      ///< how those names start
  std::vector<bool> fixed_;  ///< by node: hangs on weights alone
  std::vector<bool> waits_;  ///< by node: needs data of this stage to get static dims
  std::map<ValueId, bool>
      handed_over_;  ///< values of this stage that later ones read; true: they decide dims
  std::vector<std::int32_t> host_nodes_;  ///< data-dependent nodes, evaluated between the stages
  Named params_;
  /// What the last run gave, for the next one to write where nobody holds it: fresh pages cost more
  /// than the copies.
  std::vector<Tensor> kept_;
  /// By dims and deciding values, most recently used first.
  std::list<std::pair<std::string, std::unique_ptr<Stage>>> next_;
};

}  // namespace rlx
