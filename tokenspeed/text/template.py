"""A model's chat template: messages to the text of a prompt.

Owns the compiled template and the limits of a render. What the template cannot do with a
conversation is the caller's fault and comes back as `UserError` with the template's own words.

Invariant: in what `render` returns, a character is trusted only if the template's maker wrote it
(or it is a role, which only takes known values).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date
from typing import Any

from jinja2 import TemplateError, TemplateSyntaxError

from tokenspeed.errors import StartError, UserError
from tokenspeed.text.sandbox import DEADLINE, LongTemplateError, Sandbox, SlowTemplateError
from tokenspeed.text.trusted import concat, trust


class ChatTemplate:
    """Renders conversations. Safe to share between threads."""

    def __init__(
        self,
        source: str,
        *,
        bos: str = "",
        eos: str = "",
        chars_max: int,
        ms_max: int,
        today: Callable[[], date] = date.today,
    ) -> None:
        """`bos` and `eos` are the texts of those tokens. Raises `StartError` if `source` does not compile."""
        self.source = source
        self.knows_developer = "developer" in source
        self._chars_max = chars_max
        self._ms_max = ms_max
        self._variables = {"bos_token": trust(bos), "eos_token": trust(eos), "tools": None, "documents": None}
        try:
            self._template = Sandbox(chars_max, today).from_string(source)
        except TemplateSyntaxError as error:
            raise StartError(
                f"The model's chat template has an error in line {error.lineno}: {error.message}; download it again."
            ) from error

    def render(self, messages: list[dict[str, Any]], variables: Mapping[str, Any] | None = None) -> str:
        """Return the prompt of `messages` (as `conversation` gives them), a string with `trusted` spans.

        Raises `UserError` (param "messages") if the template refuses them or goes beyond its limits.
        """
        deadline = time.monotonic() + self._ms_max / 1000
        values = {**self._variables, **(variables or {}), "messages": messages, DEADLINE: deadline}
        try:
            context = self._template.new_context(values)
            return concat(self._limited(self._template.root_render_func(context), deadline))
        except SlowTemplateError as error:
            raise _refusal(f"took longer than {self._ms_max} ms") from error
        except LongTemplateError as error:
            raise _refusal(f"wrote more than {self._chars_max} characters") from error
        except TemplateError as error:
            raise _refusal(f"refused them: {error.message or type(error).__name__}") from error
        except Exception as error:  # whatever a template can do wrong, it did it with these messages
            raise _refusal(f"failed on them: {type(error).__name__}: {error}") from error

    def _limited(self, pieces: Iterable[str], deadline: float) -> Iterator[str]:
        chars = 0
        for piece in pieces:
            chars += len(piece)
            if chars > self._chars_max:
                raise LongTemplateError
            if time.monotonic() > deadline:
                raise SlowTemplateError
            yield piece


def _refusal(what: str) -> UserError:
    what = what.rstrip(".")
    return UserError(f"The messages cannot be rendered: the model's chat template {what}.", param="messages")
