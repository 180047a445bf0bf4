"""Stop strings: the first one to be complete ends a text.

Owns the automaton of one set of stop strings (Aho and Corasick, "Efficient string matching", 1975):
one state for each prefix of a stop string, so that a character costs constant time, however many
strings there are and however long they are.

The match that is complete first wins; of several that are complete at the same character, the
longest, which is the one that begins first. So the result depends on the text alone and not on how
it arrives, and no character after the end of the match needs to be seen.

Invariant: the state is the longest suffix of the text read that is a prefix of a stop string.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence

_ROOT = 0


class StopMatcher:
    """Reads text once, character by character. One per output stream."""

    def __init__(self, stops: Sequence[str]) -> None:
        """`stops` are not empty strings."""
        self._next: list[dict[str, int]] = [{}]
        self._depth = [0]
        self._match: list[str | None] = [None]
        self._fallback = [_ROOT]
        self._state = _ROOT
        for stop in stops:
            self._add(stop)
        self._link()
        self._begin = re.compile("[" + "".join(map(re.escape, self._next[_ROOT])) + "]") if stops else None

    @property
    def pending(self) -> int:
        """Characters at the end of the text read that may be the beginning of a stop string."""
        return self._depth[self._state]

    def read(self, text: str) -> tuple[int, str] | None:
        """Read `text` up to the first complete stop string; return where in `text` it ends, and the string."""
        place, state = 0, self._state
        while place < len(text):
            if state == _ROOT:
                found = self._begin.search(text, place) if self._begin else None
                if found is None:
                    break
                place = found.start()
            state = self._step(state, text[place])
            place += 1
            match = self._match[state]
            if match is not None:
                self._state = state
                return place, match
        self._state = state
        return None

    def _step(self, state: int, char: str) -> int:
        while state != _ROOT and char not in self._next[state]:
            state = self._fallback[state]
        return self._next[state].get(char, _ROOT)

    def _add(self, stop: str) -> None:
        state = _ROOT
        for char in stop:
            if char not in self._next[state]:
                self._next[state][char] = len(self._next)
                self._next.append({})
                self._depth.append(self._depth[state] + 1)
                self._match.append(None)
                self._fallback.append(_ROOT)
            state = self._next[state][char]
        self._match[state] = stop

    def _link(self) -> None:
        """Set each state's fallback, the longest other suffix that is a state, and the match that it implies."""
        queue = deque(self._next[_ROOT].values())
        while queue:
            state = queue.popleft()
            for char, target in self._next[state].items():
                self._fallback[target] = self._step(self._fallback[state], char)
                queue.append(target)
            if self._match[state] is None:
                self._match[state] = self._match[self._fallback[state]]
