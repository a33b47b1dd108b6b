// Which kernels share code, and numbers in objects.
#include "codegen/code_family.hpp"

#include <elf.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <unordered_map>

#include "codegen/object_file.hpp"
#include "codegen/relocation.hpp"

namespace rlx::codegen {
namespace {

/// What an instruction can hold.
bool fits(std::int64_t number) {
  return number >= std::numeric_limits<std::int32_t>::min() &&
         number <= std::numeric_limits<std::int32_t>::max();
}

/// Gives names to the numbers that differ. Numbers that are equal in every member share one: code
/// may rely on their being equal. False where a number that differs is too large.
bool name_numbers(CodeFamily& family, std::span<const std::optional<OpenCode>> kernels) {
  std::map<std::vector<std::int64_t>, std::int32_t> known;
  const std::size_t count = kernels[family.members[0]]->numbers.size();
  family.values.resize(family.members.size());
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<std::int64_t> numbers;
    for (const std::size_t member : family.members) numbers.push_back(kernels[member]->numbers[i]);
    if (std::ranges::adjacent_find(numbers, std::not_equal_to<>()) == numbers.end()) {
      family.names.push_back(-1);
      continue;
    }
    if (!std::ranges::all_of(numbers, fits)) return false;
    const auto [name, is_new] = known.try_emplace(numbers, static_cast<std::int32_t>(known.size()));
    family.names.push_back(name->second);
    if (!is_new) continue;
    for (std::size_t m = 0; m < numbers.size(); ++m) family.values[m].push_back(numbers[m]);
  }
  return true;
}

/// The number that a symbol stands for; nothing for other symbols.
std::optional<std::int64_t> number_of(std::string_view name, std::span<const std::int64_t> values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (name == number_symbol(static_cast<std::int32_t>(i))) return values[i];
  }
  return std::nullopt;
}

/// Writes the numbers and takes their relocations away.
bool write_numbers(std::vector<std::byte>& object, std::span<const std::int64_t> values) {
  const std::vector<std::byte> original = object;
  const RelocationMachine& machine = host_relocations();
  const Result<ObjectFile> file = ObjectFile::parse(original, machine.elf_machine);
  if (!file.ok()) return false;
  std::vector<std::optional<std::int64_t>> numbers;
  for (const ObjectSymbol& symbol : file->symbols())
    numbers.push_back(symbol.section == 0 ? number_of(symbol.name, values) : std::nullopt);
  const auto place_of = [&](const ObjectSection& section) {
    return object.data() + (section.bytes.data() - original.data());
  };
  for (const ObjectSection& section : file->sections()) {
    if (section.type != SHT_RELA) continue;
    const Result<std::vector<ObjectRelocation>> relocations = file->relocations(section);
    if (!relocations.ok()) return false;
    const ObjectSection& target = file->sections()[section.info];
    for (std::size_t i = 0; i < relocations->size(); ++i) {
      const ObjectRelocation& relocation = (*relocations)[i];
      const std::optional<std::int64_t>& number = numbers[relocation.symbol];
      if (!number) continue;
      const auto rule = machine.rule(relocation.type);
      if (!rule || rule->form != RelocationForm::absolute ||
          relocation.offset > target.bytes.size() ||
          target.bytes.size() - relocation.offset < rule->bytes ||
          !machine.write(relocation.type, *number + relocation.addend,
                         place_of(target) + relocation.offset)) {
        return false;
      }
      const Elf64_Rela none{};
      std::memcpy(place_of(section) + i * sizeof(none), &none, sizeof(none));
    }
  }
  return true;
}

}  // namespace

OpenCode::OpenCode(KernelOutline outline)
    : structure(digest(outline.structure)),
      numbers(std::move(outline.numbers)),
      work_items(outline.work_items),
      scratch_bytes(outline.scratch_bytes) {}

std::vector<CodeFamily> families_of(std::span<const std::optional<OpenCode>> kernels) {
  std::vector<CodeFamily> families;
  std::unordered_map<Digest, std::size_t, DigestHash> known;
  for (std::size_t k = 0; k < kernels.size(); ++k) {
    std::size_t at = families.size();
    if (kernels[k]) at = known.try_emplace(kernels[k]->structure, at).first->second;
    if (at == families.size()) families.emplace_back();
    families[at].members.push_back(k);
  }
  std::vector<CodeFamily> result;
  for (CodeFamily& family : families) {
    const std::vector<std::size_t> members = family.members;
    if (members.size() == 1 || name_numbers(family, kernels)) {
      result.push_back(std::move(family));
    } else {
      for (const std::size_t member : members) result.push_back({{member}, {}, {}});
    }
  }
  return result;
}

std::optional<KernelCode> with_numbers(const KernelCode& shared, const OpenCode& member,
                                       std::span<const std::int64_t> values) {
  KernelCode code = shared;
  if (!write_numbers(code.object, values)) return std::nullopt;
  code.work_items = member.work_items;
  code.scratch_bytes = member.scratch_bytes;
  return code;
}

}  // namespace rlx::codegen
