// A field visitor that leaves every field alone: passes override the kinds of field that they
// change.
#pragma once

#include "graph/fields.hpp"

namespace rlx::passes {

class PartialVisitor : public MutableFieldVisitor {
 public:
  void visit(std::string_view, bool&) override {}
  void visit(std::string_view, std::int64_t&) override {}
  void visit(std::string_view, std::uint64_t&) override {}
  void visit(std::string_view, double&) override {}
  void visit(std::string_view, std::string&) override {}
  void visit(std::string_view, DType&) override {}
  void visit(std::string_view, std::vector<std::int64_t>&) override {}
  void visit(std::string_view, std::vector<double>&) override {}
  void visit(std::string_view, std::vector<std::string>&) override {}
  void visit(std::string_view, Shape&) override {}
  void visit(std::string_view, Tensor&) override {}
  void visit(std::string_view, std::optional<std::int64_t>&) override {}
  void visit(std::string_view, std::optional<double>&) override {}
  void visit(std::string_view, GraphPointer&) override {}
  void visit(std::string_view, EnumField) override {}
};

}  // namespace rlx::passes
