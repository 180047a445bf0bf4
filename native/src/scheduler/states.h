// The states of a request, the events that move it, and the one table that says how.
//
// A state is a move-only struct that owns what the request holds. The table gives, for every
// (state, event), the next state, or `illegal`: then nothing changes and the caller gets an error.
// A new state joins by a struct, a row and its name; a new event by a column and its name.
// Invariant: what the next state does not own is handed to the caller, never dropped on the way.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <variant>

#include "scheduler/residency.h"

namespace ts {

// Waits for admission.
struct Submitted {};
// Some of its known tokens are still to be planned.
struct Prefilling {
  Residency residency;
};
// Its last chunk is planned, no decode row yet.
struct PrefillDone {
  Residency residency;
};
// Has had a decode row.
struct Decoding {
  Residency residency;
};
// Gave its pages up, will be computed again.
struct Retracted {};
// Ended from outside; steps in flight name it.
struct Aborting {};
// Ended; steps in flight may name it.
struct Finished {};

using State =
    std::variant<Submitted, Prefilling, PrefillDone, Decoding, Retracted, Aborting, Finished>;

// In the order of `State`.
enum class Kind : int8_t {
  kSubmitted,
  kPrefilling,
  kPrefillDone,
  kDecoding,
  kRetracted,
  kAborting,
  kFinished,
};
inline constexpr int32_t kStates = 7;
inline constexpr std::array<const char *, kStates> kStateNames = {
    "Submitted", "Prefilling", "PrefillDone", "Decoding", "Retracted", "Aborting", "Finished"};

enum class Event : int8_t {
  kAdmit,      // slot and prefix leased, prefill may begin
  kChunk,      // a chunk is planned, and more are to come
  kLastChunk,  // the last chunk is planned
  kDecode,     // a decode row is planned
  kResult,     // a step that names the request is back
  kFinish,     // an end id, or the last token allowed
  kVerdict,    // the detokenizer ended the reply
  kAbort,      // the caller is gone
  kFail,       // a step that names the request failed
  kRetract,    // its pages are needed elsewhere
  kLost,       // the executor and all its pages are gone
  kDrained,    // the last step that names it is closed
};
inline constexpr int32_t kEvents = 12;
inline constexpr std::array<const char *, kEvents> kEventNames = {
    "Admit",   "Chunk", "LastChunk", "Decode",  "Result", "Finish",
    "Verdict", "Abort", "Fail",      "Retract", "Lost",   "Drained"};

namespace table {
inline constexpr int8_t illegal = -1;
inline constexpr int8_t submitted = 0, prefilling = 1, prefilled = 2, decoding = 3, retracted = 4;
inline constexpr int8_t aborting = 5, finished = 6;
// clang-format off
inline constexpr int8_t kNext[kStates][kEvents] = {
  //               Admit       Chunk       LastChunk  Decode    Result      Finish    Verdict   Abort     Fail      Retract    Lost       Drained
  /* Submitted   */ {prefilling, illegal,    illegal,   illegal,  illegal,    illegal,  finished, aborting, illegal,  illegal,   submitted, illegal},
  /* Prefilling  */ {illegal,    prefilling, prefilled, illegal,  prefilling, illegal,  finished, aborting, aborting, retracted, retracted, illegal},
  /* PrefillDone */ {illegal,    illegal,    illegal,   decoding, prefilled,  finished, finished, aborting, aborting, retracted, retracted, illegal},
  /* Decoding    */ {illegal,    illegal,    illegal,   decoding, decoding,   finished, finished, aborting, aborting, retracted, retracted, illegal},
  /* Retracted   */ {prefilling, illegal,    illegal,   illegal,  retracted,  finished, finished, aborting, aborting, illegal,   retracted, illegal},
  /* Aborting    */ {illegal,    illegal,    illegal,   illegal,  aborting,   illegal,  aborting, aborting, aborting, illegal,   aborting,  finished},
  /* Finished    */ {illegal,    illegal,    illegal,   illegal,  finished,   illegal,  finished, finished, finished, illegal,   finished,  finished},
};
// clang-format on
}  // namespace table

inline Kind kind(const State &state) { return static_cast<Kind>(state.index()); }

// The next state as an index of `State`, or -1.
constexpr int8_t next_state(Kind from, Event event) {
  return table::kNext[static_cast<size_t>(from)][static_cast<size_t>(event)];
}

// What the request holds on the device, or null.
inline Residency *residency_of(State &state) {
  return std::visit(
      [](auto &held) -> Residency * {
        if constexpr (requires { held.residency; }) return &held.residency;
        return nullptr;
      },
      state);
}

inline bool holds_residency(Kind state) {
  return state == Kind::kPrefilling || state == Kind::kPrefillDone || state == Kind::kDecoding;
}
inline bool decodes(Kind state) { return state == Kind::kPrefillDone || state == Kind::kDecoding; }
inline bool is_live(Kind state) { return state != Kind::kAborting && state != Kind::kFinished; }

// Moves `state` along the table. `held` brings the residency of an admitted request in and takes
// out the one that the next state does not own. Returns false, changing nothing, if illegal.
bool transition(State &state, Event event, std::optional<Residency> &held);

}  // namespace ts
