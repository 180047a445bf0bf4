// Bugs planted on purpose, one per class of bug, to prove that the fuzzer sees each.
//
// A build with -DTS_PLANT=<number> contains exactly that bug; every other build contains none.
#pragma once

namespace ts {

#ifndef TS_PLANT
#define TS_PLANT 0
#endif

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
  kEnd,
};

constexpr bool planted(Bug bug) { return static_cast<int>(bug) == TS_PLANT; }

}  // namespace ts
