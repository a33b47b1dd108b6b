// A field visitor that leaves every field alone: others override the kinds of field that they read
// or change.
#pragma once

#include "graph/fields.hpp"

namespace rlx {

/// `Base`: FieldVisitor or MutableFieldVisitor.
template <class Base>
class PartialVisitor : public Base {
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

}  // namespace rlx
