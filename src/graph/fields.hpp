// Fields of attribute structs, declared once in an op's rules: printing, parsing, comparing and
// hashing derive from them.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "rlx/graph.hpp"

namespace rlx {

template <class Struct, class Member>
struct Field {
  std::string_view name;
  Member Struct::* member;
};

template <class Struct, class Member>
constexpr Field<Struct, Member> field(std::string_view name, Member Struct::* member) {
  return {name, member};
}

/// An enum field as its number and the names of all its values.
struct EnumField {
  std::uint8_t* value;
  std::span<const std::string_view> names;
};

using GraphPointer = std::shared_ptr<const Graph>;

/// Reads or writes the fields of an attribute struct in declaration order. One overload for each
/// type that fields may have.
class MutableFieldVisitor {
 public:
  virtual ~MutableFieldVisitor() = default;
  virtual void visit(std::string_view name, bool&) = 0;
  virtual void visit(std::string_view name, std::int64_t&) = 0;
  virtual void visit(std::string_view name, std::uint64_t&) = 0;
  virtual void visit(std::string_view name, double&) = 0;
  virtual void visit(std::string_view name, std::string&) = 0;
  virtual void visit(std::string_view name, DType&) = 0;
  virtual void visit(std::string_view name, std::vector<std::int64_t>&) = 0;
  virtual void visit(std::string_view name, std::vector<double>&) = 0;
  virtual void visit(std::string_view name, std::vector<std::string>&) = 0;
  virtual void visit(std::string_view name, Shape&) = 0;
  virtual void visit(std::string_view name, Tensor&) = 0;
  virtual void visit(std::string_view name, std::optional<std::int64_t>&) = 0;
  virtual void visit(std::string_view name, std::optional<double>&) = 0;
  virtual void visit(std::string_view name, GraphPointer&) = 0;
  virtual void visit(std::string_view name, EnumField) = 0;
};

/// The read-only face: a MutableFieldVisitor that promises not to write. `visit_fields` hands it
/// const attributes.
class FieldVisitor : public MutableFieldVisitor {};

namespace fields_detail {

template <class Member>
void visit_member(MutableFieldVisitor& visitor, std::string_view name, Member& member) {
  if constexpr (std::is_enum_v<Member> && !std::is_same_v<Member, DType>) {
    static_assert(sizeof(Member) == 1);
    static constexpr auto names = enum_names(Member{});
    visitor.visit(name, EnumField{reinterpret_cast<std::uint8_t*>(&member), names});
  } else {
    visitor.visit(name, member);
  }
}

bool equal(const Tensor& a, const Tensor& b);
bool equal(const GraphPointer& a, const GraphPointer& b);
template <class T>
bool equal(const T& a, const T& b) {
  return a == b;
}

}  // namespace fields_detail

template <class Struct, class Fields>
void visit_fields(Struct& attributes, const Fields& fields, MutableFieldVisitor& visitor) {
  std::apply(
      [&](const auto&... field) {
        (fields_detail::visit_member(visitor, field.name, attributes.*field.member), ...);
      },
      fields);
}

template <class Struct, class Fields>
bool equal_fields(const Struct& a, const Struct& b, const Fields& fields) {
  return std::apply(
      [&](const auto&... field) {
        return (fields_detail::equal(a.*field.member, b.*field.member) && ...);
      },
      fields);
}

}  // namespace rlx
