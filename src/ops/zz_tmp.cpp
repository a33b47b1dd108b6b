#include "graph/rules.hpp"
namespace rlx {
template <> const OpInfo& info_of<op::BlockFft>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::WelchPeaks>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::If>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::While>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::Scan>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::HostLoop>() { static const OpInfo i; return i; }
template <> const OpInfo& info_of<op::Resize>() { static const OpInfo i; return i; }
}
