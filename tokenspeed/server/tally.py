"""Tokens of one answer, over all its choices.

Owns the counts as outputs come. A prompt counts once, however many replies it has; of those, the one
that found least in the cache tells what was there before the request.

Invariant: every choice is counted with the newest of its outputs.
"""

from __future__ import annotations

import msgspec

from tokenspeed.engine.reply import OutputLike


class PromptDetails(msgspec.Struct, frozen=True):
    """`cached_tokens` of the prompt were found in the cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one answer; only kept tokens count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class Tally:
    """The counts of `choices` choices, `n` for each prompt."""

    def __init__(self, choices: int, n: int) -> None:
        self._n = n
        self._completion = [0] * choices
        self._prompt = [0] * (choices // n)
        self._cached = [-1] * (choices // n)
        self._finish = [""] * choices

    def note(self, index: int, seen: OutputLike) -> None:
        """Take the newest counts of choice `index`."""
        prompt = index // self._n
        self._completion[index] = seen.completion_tokens
        self._prompt[prompt] = seen.prompt_tokens
        cached = self._cached[prompt]
        self._cached[prompt] = seen.cached_tokens if cached < 0 else min(cached, seen.cached_tokens)
        self._finish[index] = seen.finish

    @property
    def prompt_tokens(self) -> int:
        """Tokens of all prompts, each once."""
        return sum(self._prompt)

    @property
    def cached_tokens(self) -> int:
        """Those of them that were cached."""
        return sum(max(0, cached) for cached in self._cached)

    @property
    def completion_tokens(self) -> int:
        """Tokens of all replies."""
        return sum(self._completion)

    @property
    def is_done(self) -> bool:
        """Whether every choice has ended."""
        return all(self._finish)

    @property
    def going_on(self) -> int:
        """The first choice that has not ended, 0 if all have."""
        return self._finish.index("") if "" in self._finish else 0

    def usage(self) -> Usage:
        """Return the usage so far."""
        prompt, completion = self.prompt_tokens, self.completion_tokens
        return Usage(prompt, completion, prompt + completion, PromptDetails(self.cached_tokens))
