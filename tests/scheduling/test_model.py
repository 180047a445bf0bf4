"""Hypothesis drives the core against the naive model; its budget is fixed, its seed is printed."""

from __future__ import annotations

import os
import random

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from tests.scheduling.model import Model
from tokenspeed.scheduling.scheduler import CoreConfig, replay

EXAMPLES = 120
# A new seed each run, printed so that a failure can be played again: TS_SEED=n pytest ...
SEED = int(os.environ.get("TS_SEED", "0")) or random.SystemRandom().randrange(1, 10**9)

TOKENS = st.lists(st.integers(0, 2), min_size=1, max_size=30)
OPERATIONS = st.one_of(
    st.tuples(
        st.just("submit"), TOKENS, st.integers(0, 16), st.integers(0, 7), st.booleans(), st.lists(st.integers(0, 2))
    ),
    st.tuples(st.just("plan"), st.integers(0, 19)),
    st.tuples(st.just("plan"), st.just(1)),
    st.tuples(st.just("result")),
    st.tuples(st.just("result")),
    st.tuples(st.just("cancel"), st.integers(-1, 8)),
    st.tuples(st.just("verdict"), st.integers(0, 8)),
    st.tuples(st.sampled_from(["flush", "lost", "nothing", "nothing"])),
)


@st.composite
def configs(draw: st.DrawFn) -> CoreConfig:
    groups = draw(st.sampled_from([1, 1, 2]))
    step_tokens = draw(st.integers(1, 16))
    return CoreConfig(
        page_tokens=draw(st.integers(1, 4)),
        pages_total=tuple(draw(st.integers(8, 48)) for _ in range(groups)),
        windows=(0, draw(st.integers(1, 12)))[:groups],
        slots=draw(st.integers(1, 5)),
        step_tokens=step_tokens,
        step_tokens_mixed=draw(st.integers(1, step_tokens)),
        max_model_len=48,
        overlap=draw(st.integers(0, 1)),
        width=draw(st.sampled_from([1, 1, 4])),
        prefix_caching=draw(st.sampled_from([True, True, True, False])),
        growth_tokens=draw(st.sampled_from([0, 4, 128])),
    )


def play(model: Model, operations: list[tuple[object, ...]]) -> None:
    """Apply the operations, auditing after each, then let everything come to its end."""
    submitted = 0
    for operation in operations:
        match operation:
            case ("submit", list(prompt), int(max_tokens), int(session), bool(ends), list(resume)):
                submitted += 1
                model.submit(
                    submitted,
                    prompt,
                    max_tokens,
                    session=session % 4,
                    score=session > 5,
                    end_ids=(4,) if ends else (),
                    resume=resume if len(resume) < max_tokens else [],
                    namespace=bytes([session % 2] * 16),
                )
            case ("plan", int(dice)):
                model.plan(fails=dice == 0, row_fails=dice == 2 and not model.ample)
            case ("result",) if model.flights:
                model.result()
            case ("cancel", int(back)):
                model.cancel(max(1, submitted - back))
            case ("verdict", int(back)):
                model.verdict(max(1, submitted - back))
            case ("flush",):
                model.flush()
            case ("lost",):
                model.executor_lost()
        model.audit()
    model.drain()
    replay(model.core.log())
    model.core.close()


@seed(SEED)
@settings(max_examples=EXAMPLES, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck))
@given(config=configs(), operations=st.lists(OPERATIONS, min_size=20, max_size=80))
def _random_games(config: CoreConfig, operations: list[tuple[object, ...]]) -> None:
    play(Model(config), operations)


@seed(SEED)
@settings(
    max_examples=EXAMPLES // 2, deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck)
)
@given(config=configs(), operations=st.lists(OPERATIONS, min_size=20, max_size=60))
def _random_games_with_room(config: CoreConfig, operations: list[tuple[object, ...]]) -> None:
    roomy = CoreConfig(
        page_tokens=config.page_tokens,
        pages_total=(4096,),
        windows=(0,),
        slots=config.slots,
        step_tokens=config.step_tokens,
        step_tokens_mixed=config.step_tokens_mixed,
        max_model_len=config.max_model_len,
        overlap=config.overlap,
        width=config.width,
    )
    play(Model(roomy, ample=True), operations)


@pytest.mark.parametrize("games", [_random_games, _random_games_with_room], ids=["any", "ample"])
def test_random_games(games: object, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print(f" [TS_SEED={SEED}]", end="")
    assert callable(games)
    games()
