// The audit of the whole board: every page, slot, list, claim and ticket, recounted.

#include <algorithm>
#include <map>

#include "scheduler/board.h"

namespace ts {
namespace {

std::string who(const Request &request) { return "request " + std::to_string(request.id); }

// What the owners of residencies say about each page and slot, to be compared with the ledgers.
struct Recount {
  explicit Recount(const Config &made_of)
      : config(made_of), slots(static_cast<size_t>(config.slots) + 1) {
    for (int32_t g = 0; g < config.groups; ++g) {
      own[static_cast<size_t>(g)].resize(static_cast<size_t>(config.pages_total[g]));
    }
  }

  // Counts what `residency` holds; returns an empty text, or what is wrong with it.
  std::string add(const Residency &residency, PageClass expected) {
    if (slots[static_cast<size_t>(residency.slot())]++ > 0)
      return "slot " + std::to_string(residency.slot()) + " has two owners";
    for (const Node *node : residency.path()) ++leases[node];
    for (int32_t g = 0; g < config.groups; ++g) {
      const Table &table = residency.table(g);
      for (int32_t i = table.first; i < length(table.pages); ++i) {
        const int32_t page = at(table.pages, i);
        if (page == 0) return "a table holds page 0";
        if (i < length(residency.path()) && at(at(residency.path(), i)->copies, g).page == page) {
          ++copy_leases[{at(residency.path(), i), g}];
          continue;
        }
        if (at(own, g)[static_cast<size_t>(page)] != PageClass::kFree)
          return "group " + std::to_string(g) + " page " + std::to_string(page) + " has two owners";
        at(own, g)[static_cast<size_t>(page)] = expected;
      }
    }
    return {};
  }

  const Config &config;
  std::vector<int32_t> slots;
  PerGroup<std::vector<PageClass>> own;  // kFree: no owner
  std::map<const Node *, int32_t> leases;
  std::map<std::pair<const Node *, int32_t>, int32_t> copy_leases;
};

}  // namespace

std::string Board::audit() const {
  for (int32_t g = 0; g < config_.groups; ++g) {
    if (std::string wrong = memory.pages(g).audit(); !wrong.empty()) return wrong;
  }
  if (std::string wrong = memory.slots().audit(); !wrong.empty()) return wrong;
  if (std::string wrong = memory.index().audit(); !wrong.empty()) return wrong;
  if (std::string wrong = queue.audit(); !wrong.empty()) return wrong;
  std::unordered_map<const Request *, int32_t> rows;
  for (const Step &step : steps) {
    for (const StepRow &row : step.rows) ++rows[row.request];
  }
  for (const auto &[id, request] : requests_) {
    if (std::string wrong = audit_request(*request); !wrong.empty()) return wrong;
    const auto named = rows.find(request.get());
    if ((named == rows.end() ? 0 : named->second) != request->in_flight) {
      return who(*request) + ": its tickets and the steps in flight differ";
    }
  }
  if (!std::is_sorted(running.begin(), running.end(),
                      [](const Request *a, const Request *b) { return a->arrival < b->arrival; })) {
    return "the running requests are not in order of arrival";
  }
  return audit_pages();
}

std::string Board::audit_request(const Request &request) const {
  const Kind kind = request.kind();
  const bool runs = std::find(running.begin(), running.end(), &request) != running.end();
  if (runs != holds_residency(kind)) return who(request) + " is in the wrong list";
  if (retracted.contains(const_cast<Request *>(&request)) != (kind == Kind::kRetracted)) {
    return who(request) + " is in the wrong list (retracted)";
  }
  if (!is_live(kind) && request.in_flight == 0) return who(request) + " is over but still here";
  const bool unfinished =
      kind == Kind::kSubmitted || kind == Kind::kPrefilling || kind == Kind::kRetracted;
  if ((request.session != nullptr) != unfinished) return who(request) + ": its session is wrong";
  if (request.claims_begin < request.claims_end && !runs)
    return who(request) + " claims pages but does not run";
  if (!runs) return {};
  const Residency &residency = *residency_of(const_cast<State &>(request.state));
  if (residency.last_step > next_step) return who(request) + ": its ticket is from the future";
  // Only pages whose writing step is back may be in the index.
  int32_t written = kind == Kind::kPrefilling ? request.planned : request.sequence.known() - 1;
  for (const Step &step : steps) {
    for (const StepRow &row : step.rows) {
      if (row.request == &request) written = std::min(written, row.context);
    }
  }
  if (length(residency.path()) * config_.page_tokens > written) {
    return who(request) + " published a page whose step is not back";
  }
  for (int32_t g = 0; g < config_.groups; ++g) {
    if (residency.table(g).listed > length(residency.table(g).pages))
      return who(request) + ": listed too many pages";
  }
  return {};
}

std::string Board::audit_pages() const {
  Recount recount(config_);
  for (Request *request : running) {
    std::string wrong = recount.add(request->residency(), PageClass::kOwned);
    if (!wrong.empty()) return who(*request) + ": " + wrong;
  }
  for (const Step &step : steps) {
    for (const Orphan &orphan : step.orphans) {
      std::string wrong = recount.add(orphan.residency, PageClass::kZombie);
      if (!wrong.empty()) return "step " + std::to_string(step.id) + ": " + wrong;
      if (orphan.residency.last_step != step.id)
        return "step " + std::to_string(step.id) + " holds another one's orphan";
    }
  }
  for (const Step &step : steps) {
    for (const StepRow &row : step.rows) {
      if (at(recount.slots, row.slot) == 0)
        return who(*row.request) + ": a step in flight names what nobody holds";
    }
  }
  for (const auto &[node, leases] : recount.leases) {
    if (node->leases != leases)
      return "prefix index: a node has " + std::to_string(node->leases) +
             " leases, its owners hold " + std::to_string(leases);
  }
  for (int32_t g = 0; g < config_.groups; ++g) {
    const Ledger &ledger = memory.pages(g);
    int32_t leased = 0;
    for (const auto &[key, leases] : recount.copy_leases) {
      if (key.second != g) continue;
      ++leased;
      if (at(key.first->copies, g).leases != leases) {
        return "group " + std::to_string(g) + " page " +
               std::to_string(at(key.first->copies, g).page) + ": its owners hold " +
               std::to_string(leases) + " leases, not " +
               std::to_string(at(key.first->copies, g).leases);
      }
    }
    if (leased != ledger.count(PageClass::kCachedLeased))
      return "group " + std::to_string(g) + ": a leased page has no owner";
    for (int32_t page = 1; page < ledger.total(); ++page) {
      const PageClass owner = at(recount.own, g)[static_cast<size_t>(page)];
      const PageClass seen = ledger.class_of(page);
      const bool owned = seen == PageClass::kOwned || seen == PageClass::kZombie;
      if (owner == PageClass::kFree ? owned : seen != owner) {
        return "group " + std::to_string(g) + " page " + std::to_string(page) + " is " +
               name(seen) + ", its owner says " +
               (owner == PageClass::kFree ? "nothing" : name(owner));
      }
    }
  }
  for (int32_t slot = 1; slot <= config_.slots; ++slot) {
    if ((memory.slots().class_of(slot) != PageClass::kFree) != (at(recount.slots, slot) > 0)) {
      return "slot " + std::to_string(slot) + " is " + name(memory.slots().class_of(slot)) +
             ", its owner says otherwise";
    }
  }
  return {};
}

}  // namespace ts
