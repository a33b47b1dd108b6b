// Picks a device by policy: who may serve, what each would take, and why one is chosen.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "base/error.hpp"
#include "rlx/cost.hpp"

namespace rlx {
namespace {

constexpr std::array preference = {Device::tpu,   Device::cuda, Device::rocm, Device::mlx,
                                   Device::metal, Device::gpu,  Device::cpu};

/// Predictions of presets are trusted to this factor: closer candidates race where that is allowed.
constexpr double error_bar = 1.5;

template <class List>
std::size_t position(const List& list, Device device) {
  return static_cast<std::size_t>(std::find(list.begin(), list.end(), device) - list.begin());
}

/// Rank in the policy's order; devices that it does not name follow in the usual order.
std::size_t rank_of(const DevicePolicy& policy, Device device) {
  const std::size_t named = position(policy.order, device);
  return named < policy.order.size() ? named : policy.order.size() + position(preference, device);
}

bool contains(const std::vector<Device>& list, Device device) {
  return std::find(list.begin(), list.end(), device) != list.end();
}

/// " (RLX_X)" where that variable is a part of the policy.
std::string by_variable(const DevicePolicy& policy, const std::string& name) {
  const bool is_part = std::ranges::find(policy.variables, name) != policy.variables.end();
  return is_part ? " (" + name + ")" : "";
}

std::string asked_by(const DevicePolicy& policy) {
  return "asked for by name" + by_variable(policy, "RLX_DEVICE");
}

DeviceChoice::Candidate examine(const Graph& graph, const DevicePolicy& policy,
                                const DeviceFacts& facts) {
  DeviceChoice::Candidate candidate{.device = facts.device};
  if (facts.model) {
    candidate.predicted_ns = estimate_graph_cost(graph, *facts.model);
    candidate.calibrated = facts.model->calibrated;
  }
  if (contains(policy.deny, facts.device)) {
    candidate.reason = "denied by the policy" + by_variable(policy, "RLX_DENY_DEVICES");
  } else if (!policy.allow.empty() && !contains(policy.allow, facts.device)) {
    candidate.reason =
        "not among the devices that the policy allows" + by_variable(policy, "RLX_DEVICES");
  } else if (!facts.available) {
    candidate.reason = "not available: " + facts.reason;
  } else if (!facts.runs_graph) {
    candidate.reason = "unable to run the graph: " + facts.reason;
  } else {
    candidate.eligible = true;
  }
  return candidate;
}

std::string time_text(double ns) {
  return ns < 1e6 ? fmt::format("{:.1f} us", ns / 1e3) : fmt::format("{:.2f} ms", ns / 1e6);
}

/// Reasons may be whole sentences.
std::string without_dot(std::string text) {
  if (text.ends_with('.')) text.pop_back();
  return text;
}

using Candidates = std::vector<const DeviceChoice::Candidate*>;

/// Measured candidates near the best prediction; the fastest and why, or nothing where none ran.
std::optional<std::pair<Device, std::string>> race_result(const Candidates& near,
                                                          const RaceFunction& race) {
  std::optional<Device> best;
  double best_ns = 0;
  std::string text;
  for (const DeviceChoice::Candidate* candidate : near) {
    const Result<double> measured = race(candidate->device);
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(candidate->device),
                        measured.ok() ? time_text(*measured)
                                      : fmt::format("failed ({})", measured.error().message));
    if (!measured.ok() || (best && *measured >= best_ns)) continue;
    best = candidate->device;
    best_ns = *measured;
  }
  if (!best) return std::nullopt;
  return std::pair{*best, fmt::format("won a race: {}", text)};
}

std::pair<Device, std::string> pick(const DevicePolicy& policy, const Candidates& eligible,
                                    const RaceFunction& race) {
  const Device first = eligible.front()->device;  // eligible is in the policy's order
  if (eligible.size() == 1)
    return {first, "the only device that is available, allowed and able to run the graph"};
  if (policy.pick == DevicePolicy::Pick::order) return {first, "first in the order of preference"};
  Candidates modelled;
  for (const auto* candidate : eligible) {
    if (candidate->predicted_ns >= 0) modelled.push_back(candidate);
  }
  if (modelled.empty())
    return {first, "first in the order of preference: no device has a cost model"};
  const auto* best = *std::min_element(
      modelled.begin(), modelled.end(),
      [](const auto* a, const auto* b) { return a->predicted_ns < b->predicted_ns; });
  Candidates near;
  for (const auto* candidate : modelled) {
    if (candidate->predicted_ns <= error_bar * best->predicted_ns) near.push_back(candidate);
  }
  if (policy.pick == DevicePolicy::Pick::race && race && near.size() > 1) {
    if (const auto winner = race_result(near, race)) return *winner;
  }
  return {best->device, fmt::format("lowest predicted time ({}{})", time_text(best->predicted_ns),
                                    best->calibrated ? "" : ", uncalibrated preset")};
}

Result<std::vector<Device>> devices_in(const char* variable) {
  const char* text = std::getenv(variable);
  std::vector<Device> list;
  std::string_view rest = text ? text : "";
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    if (name.empty()) continue;
    const auto device = device_named(name);
    if (!device) return error(ErrorKind::usage, "{} names no device ({}).", variable, name);
    if (*device != Device::automatic) list.push_back(*device);
  }
  return list;
}

}  // namespace

Device pick_best_device(const Graph& graph, std::span<const BackendCostModel> models) {
  const BackendCostModel* best = nullptr;
  double best_ns = 0;
  for (const Device device : preference) {
    for (const BackendCostModel& model : models) {
      if (model.device != device) continue;
      const double ns = estimate_graph_cost(graph, model);
      if (best && ns >= best_ns) continue;
      best = &model;
      best_ns = ns;
    }
  }
  return best ? best->device : Device::cpu;
}

Result<DeviceChoice> choose_device(const Graph& graph, const DevicePolicy& policy,
                                   std::span<const DeviceFacts> facts, const RaceFunction& race) {
  DeviceChoice choice;
  for (const DeviceFacts& device : facts)
    choice.candidates.push_back(examine(graph, policy, device));
  std::stable_sort(choice.candidates.begin(), choice.candidates.end(),
                   [&](const auto& a, const auto& b) {
                     return rank_of(policy, a.device) < rank_of(policy, b.device);
                   });
  Candidates eligible;
  std::string reasons;
  for (const DeviceChoice::Candidate& candidate : choice.candidates) {
    if (candidate.eligible) eligible.push_back(&candidate);
    if (!candidate.reason.empty())
      reasons += fmt::format(" {}: {}.", name_of(candidate.device), without_dot(candidate.reason));
  }
  std::string replaced;
  if (policy.asked != Device::automatic) {
    const auto asked =
        std::find_if(choice.candidates.begin(), choice.candidates.end(),
                     [&](const auto& candidate) { return candidate.device == policy.asked; });
    const bool known = asked != choice.candidates.end();
    if (known && asked->eligible) {
      choice.device = policy.asked;
      choice.reason = asked->reason = asked_by(policy);
      return choice;
    }
    const std::string why = known ? asked->reason : "not available: not built in";
    if (policy.missing == DevicePolicy::Missing::strict)
      return not_available("The device ({}) is {}. It was {}.", name_of(policy.asked),
                           without_dot(why), asked_by(policy));
    replaced = fmt::format("in place of {} ({}): ", name_of(policy.asked), why);
  }
  if (eligible.empty())
    return not_available("No device ({}) can serve.{}", choice.candidates.size(), reasons);
  const auto [device, reason] = pick(policy, eligible, race);
  choice.device = device;
  choice.reason = replaced + reason;
  for (DeviceChoice::Candidate& candidate : choice.candidates) {
    if (!candidate.eligible) continue;
    candidate.reason = candidate.device == device ? choice.reason : "not chosen";
  }
  return choice;
}

Result<DevicePolicy> with_environment(DevicePolicy policy) {
  RLX_ASSIGN(const std::vector<Device> asked, devices_in("RLX_DEVICE"));
  RLX_ASSIGN(const std::vector<Device> allowed, devices_in("RLX_DEVICES"));
  RLX_ASSIGN(const std::vector<Device> denied, devices_in("RLX_DENY_DEVICES"));
  if (asked.size() > 1)
    return error(ErrorKind::usage, "RLX_DEVICE names more than one device ({}).", asked.size());
  if (policy.asked == Device::automatic && !asked.empty()) {
    policy.asked = asked.front();
    policy.variables.emplace_back("RLX_DEVICE");
  }
  if (policy.allow.empty() && !allowed.empty()) {
    policy.allow = allowed;
    policy.variables.emplace_back("RLX_DEVICES");
  }
  if (policy.order.empty()) policy.order = allowed;
  if (!denied.empty()) policy.variables.emplace_back("RLX_DENY_DEVICES");
  policy.deny.insert(policy.deny.end(), denied.begin(), denied.end());
  return policy;
}

}  // namespace rlx
