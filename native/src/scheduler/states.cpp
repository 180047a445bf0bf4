#include "scheduler/states.h"

namespace ts {
namespace {

// Index by index, the variant is the enum; the assertions hold the two together.
template <Kind K, class S>
constexpr bool kSame = std::is_same_v<std::variant_alternative_t<static_cast<size_t>(K), State>, S>;
static_assert(std::variant_size_v<State> == kStates);
static_assert(kSame<Kind::kSubmitted, Submitted> && kSame<Kind::kPrefilling, Prefilling>);
static_assert(kSame<Kind::kPrefillDone, PrefillDone> && kSame<Kind::kDecoding, Decoding>);
static_assert(kSame<Kind::kRetracted, Retracted> && kSame<Kind::kAborting, Aborting>);
static_assert(kSame<Kind::kFinished, Finished>);

State make(Kind next, std::optional<Residency> &held) {
  const auto take = [&held] {
    Residency residency = std::move(*held);
    held.reset();
    return residency;
  };
  switch (next) {
    case Kind::kPrefilling:
      return Prefilling{take()};
    case Kind::kPrefillDone:
      return PrefillDone{take()};
    case Kind::kDecoding:
      return Decoding{take()};
    case Kind::kSubmitted:
      return Submitted{};
    case Kind::kRetracted:
      return Retracted{};
    case Kind::kAborting:
      return Aborting{};
    case Kind::kFinished:
      return Finished{};
  }
  return Finished{};
}

}  // namespace

bool transition(State &state, Event event, std::optional<Residency> &held) {
  const Kind from = kind(state);
  const int8_t next = next_state(from, event);
  if (next < 0) return false;
  if (static_cast<Kind>(next) == from) return true;  // everything held stays where it is
  if (Residency *residency = residency_of(state)) held.emplace(std::move(*residency));
  if (holds_residency(static_cast<Kind>(next)) && !held) return false;
  state = make(static_cast<Kind>(next), held);
  return true;
}

}  // namespace ts
