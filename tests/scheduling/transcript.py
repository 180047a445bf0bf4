"""Transcripts: events as text, and under each what the scheduler answered.

    python -m tests.scheduling.transcript            compares all of them
    python -m tests.scheduling.transcript --rewrite  writes the answers anew, to be reviewed as a diff

A file has a `config` line, then events, one a line; answers are indented and belong to the event
above. Prompts are written as words: `1..9` counts up, `3x7` repeats. `result` answers the oldest step
in flight with id 50 for each sampled row, or with the ids given (`1,2` is a row of two, `failed` one
that could not be computed).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tests.scheduling.model import quads, tokens_of, tokens_text
from tokenspeed.errors import TokenSpeedError
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, ROW_SCORE
from tokenspeed.messages.scheduler import ROW_FAILED
from tokenspeed.scheduling.scheduler import CoreConfig, Plan, Scheduler

FOLDER = Path(__file__).with_name("transcripts")
ANSWER = "    "


class Teller:
    """Plays the events of one transcript and tells what came of each."""

    def __init__(self, config: CoreConfig) -> None:
        self.core = Scheduler(config)
        self.flights: list[Plan] = []
        self.now_us = 0

    def tell(self, line: str) -> list[str]:
        """Apply one event and return its answer."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        plain = [word for word in words if "=" not in word]
        try:
            answer: list[str] = getattr(self, f"_{verb}")(plain, options)
        except TokenSpeedError as error:
            answer = [f"{type(error).__name__}: {error.message}"]
        self.core.check()
        return answer

    def _wait(self, plain: list[str], options: dict[str, str]) -> list[str]:
        self.now_us += int(plain[0])
        return []

    def _submit(self, plain: list[str], options: dict[str, str]) -> list[str]:
        taken = self.core.submit(
            self.now_us,
            int(plain[0]),
            pack_ids(tokens_of(" ".join(plain[1:]))),
            resume=pack_ids(tokens_of(options.get("resume", ""))),
            max_tokens=int(options["max"]),
            end_ids=tuple(tokens_of(options.get("end", ""))),
            session=int(options.get("session", plain[0])),
            priority=int(options.get("priority", "0")),
            score="score" in options,
        )
        return [] if taken else ["swallowed"]

    def _cancel(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return ["live" if self.core.cancel(self.now_us, int(plain[0])) else "not live"]

    def _verdict(self, plain: list[str], options: dict[str, str]) -> list[str]:
        live = self.core.verdict(self.now_us, int(plain[0]), int(plain[1]))
        return ["live" if live else "not live"]

    def _flush(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return [f"{self.core.flush(self.now_us)} pages freed"]

    def _lost(self, plain: list[str], options: dict[str, str]) -> list[str]:
        self.flights.clear()
        self.core.executor_lost(self.now_us)
        return []

    def _states(self, plain: list[str], options: dict[str, str]) -> list[str]:
        return [" ".join(f"{number}:{self.core.state(int(number))}" for number in plain)]

    def _pages(self, plain: list[str], options: dict[str, str]) -> list[str]:
        stats = self.core.stats()
        names = ("free", "owned", "cached_idle", "cached_leased", "zombie")
        return [" ".join(f"{name} {getattr(stats, f'pages_{name}')}" for name in names)]

    def _fail(self, plain: list[str], options: dict[str, str]) -> list[str]:
        step = self.flights.pop(0).step
        return [f"step {step} ended {' '.join(map(str, self.core.step_failed(self.now_us, step))) or 'none'}"]

    def _result(self, plain: list[str], options: dict[str, str]) -> list[str]:
        plan = self.flights.pop(0)
        rows = [None if word == "failed" else [int(token) for token in word.split(",")] for word in plain]
        rows = rows or [[50]] * plan.sample_rows
        counts = pack_ids(ROW_FAILED if row is None else len(row) for row in rows)
        ids = pack_ids(token for row in rows for token in row or [])
        outcomes = self.core.result(self.now_us, plan.step, 1, counts, ids)
        told = [f"step {plan.step} is back"]
        for request, first, accepted, finish, _ in outcomes:
            told.append(f"  {request}[{first}] = {tokens_text(unpack_ids(accepted))} {finish}".rstrip())
        return told

    def _plan(self, plain: list[str], options: dict[str, str]) -> list[str]:
        plan = self.core.plan(self.now_us)
        if plan is None:
            return ["nothing"]
        self.flights.append(plan)
        told = [f"step {plan.step}"]
        told += [f"  open slot {slot} for {request}" for slot, request in plan.openings]
        ids = unpack_ids(plan.ids)
        for slot, tokens, context, flags in quads(plan.rows):
            kind = "decode" if flags & ROW_DECODE else "chunk"
            what = f"  {kind} slot {slot}: {context}+{tokens}"
            if not flags & ROW_DECODE:
                what += f" [{tokens_text(ids[:tokens])}]"
                del ids[:tokens]
            told.append(what + (" score" if flags & ROW_SCORE else "") + (" sample" if flags & ROW_SAMPLE else ""))
        for slot, group, index, page in quads(plan.pages):
            told.append(f"  page slot {slot} group {group} [{index}] = {page}")
        return told


def parse_config(line: str) -> CoreConfig:
    """Read `config page_tokens=4 pages_total=9 windows=0 ...`; commas separate groups."""
    fields: dict[str, Any] = {}
    for word in line.split()[1:]:
        name, value = word.split("=")
        numbers = tuple(int(number) for number in value.split(","))
        fields[name] = numbers if name in ("pages_total", "windows") else numbers[0]
    return CoreConfig(**fields)


def played(text: str) -> str:
    """Return the transcript with the answers that the scheduler gives now."""
    teller: Teller | None = None
    lines: list[str] = []
    for line in text.splitlines():
        if line.startswith(ANSWER):
            continue
        lines.append(line)
        if line.startswith("config "):
            teller = Teller(parse_config(line))
        elif line and not line.startswith("#"):
            assert teller is not None, "the config line comes first"
            lines += [ANSWER + answer for answer in teller.tell(line)]
    return "\n".join(lines) + "\n"


def main(rewrite: bool) -> int:
    """Compare or rewrite all transcripts; return how many differ."""
    differing = 0
    for path in sorted(FOLDER.glob("*.txt")):
        new = played(path.read_text())
        if new == path.read_text():
            continue
        differing += 1
        print(f"{path.name}: {'rewritten' if rewrite else 'differs'}")
        if rewrite:
            path.write_text(new)
    return 0 if rewrite else differing


if __name__ == "__main__":
    sys.exit(main("--rewrite" in sys.argv[1:]))
