"""The command line of `make prove`: which proofs run, a progress bar, the table at the end."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tokenspeed.cli.screen import Screen
from tokenspeed_tools.prove import registry
from tokenspeed_tools.prove.ledger import Ledger
from tokenspeed_tools.prove.registry import Proof
from tokenspeed_tools.prove.run import Outcome, run


def figures_text(outcome: Outcome) -> str:
    """Return figures on one line, or why there are none."""
    if outcome.reason:
        return outcome.reason.strip().splitlines()[0][:100]
    return ", ".join(f"{name} {value}" for name, value in outcome.figures.items() if not isinstance(value, dict))


def prove(proofs: list[Proof], ledger: Ledger, repository: Path) -> dict[str, Outcome]:
    """Run what is given, one after the other, and write each down as it ends."""
    screen, outcomes = Screen(sys.stderr), {}
    for done, proof in enumerate(proofs):
        screen.progress(f"prove: {done + 1}/{len(proofs)} {proof.name}")
        outcome = run(proof, repository)
        outcomes[proof.name] = outcome
        ledger.add(
            proof.name,
            ok=not outcome.reason,
            figures=outcome.figures,
            seconds=outcome.seconds,
            reason=outcome.reason,
        )
    screen.say(f"prove: {len(outcomes)} done")
    return outcomes


def table(proofs: list[Proof], outcomes: dict[str, Outcome], ledger: Ledger) -> str:
    """Return one line a proof: state, seconds, name, figures."""
    lines = []
    for proof in proofs:
        outcome = outcomes.get(proof.name)
        if outcome is None:
            state = "before" if ledger.proved(proof.name) else "-"
            lines.append(f"{state:7} {'':8} {proof.name}: {proof.shows}")
        else:
            state = "FAILED" if outcome.reason else "shown"
            lines.append(f"{state:7} {outcome.seconds:7.1f}s {proof.name}: {figures_text(outcome) or proof.shows}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Run what has not been shown yet; exit status 1 if anything fails."""
    parser = argparse.ArgumentParser(prog="prove", description=main.__doc__)
    parser.add_argument("--again", action="store_true", help="also run what was shown for this very source")
    parser.add_argument("--only", metavar="TEXT", default="", help="only proofs whose name contains TEXT")
    parser.add_argument("--list", action="store_true", help="say what there is, and run nothing")
    parser.add_argument("--path", type=Path, default=Path("benchmarks/prove.jsonl"), help="the file of results")
    options = parser.parse_args(arguments)
    repository = Path.cwd()
    proofs = [proof for proof in registry.everything(repository) if options.only in proof.name]
    ledger = Ledger(options.path, repository)
    wanted = [] if options.list else [p for p in proofs if options.again or not ledger.proved(p.name)]
    outcomes = prove(wanted, ledger, repository)
    print(table(proofs, outcomes, ledger))
    failed = sum(bool(outcome.reason) for outcome in outcomes.values())
    print(f"prove: {len(outcomes) - failed} passed, {failed} failed, {len(proofs) - len(outcomes)} skipped")
    return 1 if failed else 0
