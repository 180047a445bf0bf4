"""The jinja2 environment in which a chat template runs.

Owns what a template may do and what it finds there: an immutable sandbox with the functions that
published templates expect (`tojson`, `raise_exception`, `strftime_now`, loop controls, generation
blocks), a limit of time in every loop, a limit of size on repetition, and trust in the template's
own literals (see `trusted`). It knows no messages and no model.

Invariant: rendering changes nothing outside the render.
"""

from __future__ import annotations

import json
import operator
import time
from collections.abc import Callable, Iterable, Iterator
from datetime import date, datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from tokenspeed.text.trusted import concat, join, trust

POWER_BITS_MAX = 4096
DEADLINE = "the deadline"  # no name that a template can write
_PACED = "paced"


class SlowTemplateError(TemplateError):
    """The template used up its time."""


class LongTemplateError(TemplateError):
    """The template wrote more than it may."""


class Sandbox(ImmutableSandboxedEnvironment):
    """Compiles one template. Variables of a render must hold `DEADLINE`, a `time.monotonic` value."""

    intercepted_binops = frozenset(["*", "**"])
    concat = staticmethod(concat)

    def __init__(self, chars_max: int, today: Callable[[], date]) -> None:
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[LoopControlExtension, Generation])
        self.code_generator_class = LiteralsTrusted
        self.literals: list[str] = []
        self.chars_max = chars_max
        self.filters.update({"tojson": to_json, "join": joined, _PACED: paced})
        self.globals.update(raise_exception=raise_exception, strftime_now=_clock(today))

    def literal(self, text: str) -> str:
        """Return the expression that stands for the literal `text` in compiled code."""
        self.literals.append(trust(text))
        return f"environment.literals[{len(self.literals) - 1}]"

    def joined(self, values: Iterable[object]) -> str:
        """Return the text of `values` in a row: the operator `~`."""
        return concat([str(value) for value in values])

    def call_binop(self, context: Context, operator_name: str, left: Any, right: Any) -> Any:
        """Compute `*` and `**`, unless the result would be huge."""
        if operator_name == "*":
            self._check_repetition(left, right)
            return operator.mul(left, right)
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() * right > POWER_BITS_MAX:
            raise SecurityError("a power is too large")
        return operator.pow(left, right)

    def _check_repetition(self, left: Any, right: Any) -> None:
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > POWER_BITS_MAX:
            raise SecurityError("a product is too large")
        for value, times in ((left, right), (right, left)):
            if isinstance(value, str | list | tuple) and isinstance(times, int) and len(value) * times > self.chars_max:
                raise LongTemplateError(f"a repetition is longer than {self.chars_max}")


class LiteralsTrusted(CodeGenerator):
    """Writes code in which the template's literals are `Trusted`, and whose loops keep the time."""

    environment: Sandbox

    def visit_Template(self, node: nodes.Template, frame: Frame | None = None) -> None:  # noqa: N802
        """Compile a whole template."""
        super().visit_Template(_PaceLoops().visit(node), frame)

    def visit_Const(self, node: nodes.Const, frame: Frame) -> None:  # noqa: N802
        """Write a constant of an expression."""
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, str):
            self.write(self.environment.literal(value))
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: nodes.TemplateData, frame: Frame) -> None:  # noqa: N802
        """Write the text between tags."""
        self.write(self.environment.literal(node.data))

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802
        """Write the operator `~`."""
        self.write("environment.joined((")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write("))")

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return self.environment.literal("".join(map(str, group)))


class _PaceLoops(NodeTransformer):
    """Lets every loop run over `iterable | paced`."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self.generic_visit(node)
        node.iter = nodes.Filter(node.iter, _PACED, [], [], None, None, lineno=node.lineno)
        return node


class Generation(Extension):
    """`{% generation %}` marks the model's own words for training; here it only shows them."""

    tags = {"generation"}  # noqa: RUF012  # declared so by jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements inside the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


@pass_context
def paced(context: Context, items: Iterable[Any]) -> Iterator[Any]:
    """Yield `items` while there is time."""
    deadline: float = context.parent[DEADLINE]
    for item in items:
        if time.monotonic() > deadline:
            raise SlowTemplateError("the template ran out of time")
        yield item


def to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Return `value` as JSON in the client's key order, not escaped for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def joined(items: Iterable[Any], d: str = "", attribute: str | None = None) -> str:
    """Return `items`, or one attribute of each, as text with `d` between them."""
    values = items if attribute is None else (item[attribute] for item in items)
    return join(d, [str(value) for value in values])


def raise_exception(message: str) -> NoReturn:
    """Refuse the conversation: the template's own way to say why."""
    raise TemplateError(message)


def _clock(today: Callable[[], date]) -> Callable[[str], str]:
    def strftime_now(form: str) -> str:
        # A date without a time, so that prompts of one day have one beginning.
        return datetime.combine(today(), datetime.min.time()).strftime(form)

    return strftime_now
