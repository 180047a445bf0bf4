// Bugs planted on purpose, one per class of bug, to prove that the fuzzer sees each.
//
// Only a build with TS_FUZZ can plant one (or weaken the hash), chosen at run time; in every other
// build `planted` is the constant false and nothing of this is left.
#pragma once

namespace ts {

enum class Bug {
  kNone,
  kPageFreedTwice,
  kPageLeakedOnAbort,
  kTicketDroppedEarly,
  kPublishedBeforeResult,
  kHashWithoutTokens,
  kLeasedPageWritten,
  kSlotLeaked,
  kLeaseLeaked,
  kLeasedPageEvictable,
  kRowPastLimit,
  kRowAfterEndDelivered,
  kTokenLostInRetract,
  kWindowSlidEarly,
  kNamespaceIgnored,
  kFlushKeepsLeased,
  kIndexSurvivesExecutor,
  kDepthIgnored,
  kOldestRetracted,
  kRejectedTokensPublished,
  kPageNotListed,
  kClaimKeptByDead,
  kWithdrawnGrows,
  kScoredFromCache,
  kEnd,
};

#ifdef TS_FUZZ
inline Bug planted_bug = Bug::kNone;
inline bool weak_hash = false;
inline bool planted(Bug bug) { return bug == planted_bug; }
#else
inline constexpr bool weak_hash = false;
constexpr bool planted(Bug) { return false; }
#endif

}  // namespace ts
