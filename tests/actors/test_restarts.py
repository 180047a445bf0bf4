"""Actors that die or freeze in the middle of traffic."""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path

import pytest

from tests.actors.toys import Item, Order, Report, ToyConfig
from tests.actors.world import World, edge, run, to_and_from_home, wait_gone
from tokenspeed.actors import health
from tokenspeed.actors.supervisor import State

pytestmark = pytest.mark.long

STALL_S = 0.8
CHAIN = {"a": ToyConfig(forward_to="b"), "b": ToyConfig(forward_to="home")}
CHAIN_EDGES = [*to_and_from_home("a", "b"), edge("a", "b")]


def test_a_killed_actor_comes_back_and_peers_are_told() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            before = world.pid("b")
            world.signal("b", signal.SIGKILL)
            await world.until_ready("b", restarts=1)
            assert world.pid("b") != before
            [(actor, epoch)] = world.restarts()
            assert actor == "b"
            await world.until(lambda: world.reports("a") == [Report("peer b", epoch)])
            world.send("a", Item(1))
            await world.until(lambda: world.items("b") == [1])
            assert world.reports("b") == []

    run(main())


def test_what_is_sent_after_a_restart_arrives_and_what_came_before_is_a_prefix() -> None:
    """Traffic runs all the time; the home sends again what it misses when it hears of the restart."""
    total = 3_000

    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            delivered: list[int] = []

            def send_again(actor: str) -> None:
                delivered[:] = world.items("b")
                for number in range(total, 2 * total):
                    world.send("a", Item(number))

            world.on_restart = send_again
            for number in range(total):
                world.send("a", Item(number, bytes(500)))
            await world.until(lambda: len(world.items("b")) > 100)
            world.signal("b", signal.SIGKILL)
            await world.until(lambda: world.items("b")[-1:] == [2 * total - 1])
            received = world.items("b")
            assert delivered == list(range(len(delivered)))
            assert 100 < len(delivered) <= total
            # Of the old numbers, `a` may pass on some that it had not read yet; in order, none twice.
            assert received == sorted(set(received))
            assert received[-total:] == list(range(total, 2 * total))
            assert received[: len(delivered)] == delivered

    run(main())


def test_nothing_of_the_old_life_is_heard_before_the_home_knows() -> None:
    """What a survivor says in the new epoch comes after `on_restart`, what it said before may too."""

    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            for _ in range(3):
                restarts = world.supervisor.health()["b"].restarts
                world.signal("b", signal.SIGKILL)
                await world.until_ready("b", restarts + 1)
            await world.until(lambda: len(world.reports("a")) == 3)
            epochs = [word for _, word in world.heard if isinstance(word, tuple | Report)]
            told = [word[1] if isinstance(word, tuple) else word.number for word in epochs]
            assert told == sorted(told)
            assert [isinstance(word, tuple) for word in epochs] == [True, False] * 3

    run(main())


def test_survivors_keep_no_descriptor_of_old_rings() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            for restarts in range(1, 4):
                world.signal("b", signal.SIGKILL)
                await world.until_ready("b", restarts)
                await world.until(lambda: len(world.reports("a")) % 2 == 1)
                world.send("a", Order("descriptors"))
                await world.until(lambda: world.reports("a")[-1].text == "descriptors")
            counts = [report.number for report in world.reports("a") if report.text == "descriptors"]
            assert len(set(counts)) == 1, counts

    run(main())


def test_two_actors_killed_at_once() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            for name in ("a", "b"):
                world.signal(name, signal.SIGKILL)
            await world.until_ready("a", restarts=1)
            await world.until_ready("b", restarts=1)
            (first, _), (second, epoch) = world.restarts()
            assert {first, second} == {"a", "b"}
            world.send("a", Item(1))
            await world.until(lambda: world.items("b") == [1])
            assert world.reports(first) == [Report(f"peer {second}", epoch)]
            assert world.reports(second) == []

    run(main())


def test_a_peer_that_restarts_while_an_actor_starts(tmp_path: Path) -> None:
    """`b` starts slowly in its second life; meanwhile `a` dies: `b` hears of it once it is ready."""
    gate = tmp_path / "gate"

    async def main() -> None:
        slow = ToyConfig(forward_to="home", lives=str(tmp_path / "lives"), gate=str(gate))
        async with World({"a": ToyConfig(forward_to="b"), "b": slow}, CHAIN_EDGES) as world:
            world.signal("b", signal.SIGKILL)
            await world.until(lambda: "b: waits at the gate" in world.events)
            world.signal("a", signal.SIGKILL)
            await world.until_ready("a", restarts=1)
            assert world.supervisor.health()["b"].state is State.RESTARTING
            world.send("a", Item(5))
            gate.touch()
            await world.until_ready("b", restarts=1)
            await world.until(lambda: world.items("b") == [5])
            [_, (_, epoch)] = world.restarts()
            assert world.reports("b") == [Report("peer a", epoch)]

    run(main())


def test_a_stopped_actor_is_found_frozen_and_restarted() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES, stall_limit_s=STALL_S) as world:
            began = time.monotonic()
            world.signal("b", signal.SIGSTOP)
            await world.until(lambda: bool(world.restarts()))
            assert STALL_S * 0.5 < time.monotonic() - began < STALL_S + 2
            await world.until_ready("b", restarts=1)
            assert any(text.startswith("b: frozen") for text in world.events)
            world.send("a", Item(1))
            await world.until(lambda: world.items("b") == [1])
            assert world.supervisor.health()["a"].restarts == 0

    run(main())


def test_silence_while_the_parent_itself_was_stopped_is_forgiven() -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a"), stall_limit_s=STALL_S) as world:
            world.signal("a", signal.SIGSTOP)
            _stop_the_loop(STALL_S + 1)
            await asyncio.sleep(STALL_S / 2)  # the watch looks before the actor runs again
            world.signal("a", signal.SIGCONT)
            world.send("a", Item(1))
            await world.until(lambda: world.items("a") == [1])
            assert world.restarts() == []

    run(main())


def test_a_survivor_that_is_frozen_too_does_not_hold_up_the_restart_for_ever() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES, stall_limit_s=STALL_S) as world:
            world.signal("a", signal.SIGSTOP)
            world.signal("b", signal.SIGKILL)
            await world.until_ready("b", restarts=1)
            await world.until_ready("a", restarts=1)
            world.send("a", Item(1))
            await world.until(lambda: world.items("b") == [1])

    run(main())


def test_a_loop_may_be_silent_when_it_took_leave() -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a"), stall_limit_s=STALL_S) as world:
            world.send("a", Order("block with leave", 2 * STALL_S))
            await world.until(lambda: world.reports("a") == [Report("blocked")])
            assert world.restarts() == []

    run(main())


def test_a_loop_that_blocks_too_long_is_restarted() -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a"), stall_limit_s=STALL_S) as world:
            world.send("a", Order("block", 60))
            await world.until_ready("a", restarts=1)
            world.send("a", Item(1))
            await world.until(lambda: world.items("a") == [1])

    run(main())


@pytest.mark.parametrize(
    ("order", "reason"),
    [
        ("raise", "handling Order from home: ValueError: told to"),
        ("fail later", "RuntimeError: nobody caught this"),
    ],
)
def test_an_exception_ends_the_life(order: str, reason: str) -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a")) as world:
            world.send("a", Order(order))
            await world.until_ready("a", restarts=1)
            assert any(reason in text for text in world.events), world.events
            assert reason in world.supervisor.health()["a"].error

    run(main())


def test_a_record_that_cannot_be_decoded_ends_the_receivers_life() -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a")) as world:
            world.send("a", Unknown(1))
            await world.until_ready("a", restarts=1)
            assert "decoding Unknown from home" in world.supervisor.health()["a"].error

    run(main())


def test_a_sender_that_talks_nonsense_to_the_home_begins_a_new_life() -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a")) as world:
            world.send("a", Order("talk nonsense"))
            await world.until_ready("a", restarts=1)
            assert "decoding Nonsense from a" in world.supervisor.health()["a"].error
            world.send("a", Item(1))
            await world.until(lambda: world.items("a") == [1])

    run(main())


def test_a_failing_handler_of_the_home_costs_one_record(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with World({"a": ToyConfig()}, to_and_from_home("a")) as world:
            world.fail_on = 1
            for number in range(3):
                world.send("a", Item(number))
            await world.until(lambda: world.items("a") == [0, 2])
            assert world.restarts() == []

    run(main())
    assert any("handling Item from a" in str(record.exc_info) for record in caplog.records)


def test_a_broadcast_ring_is_replaced_for_all() -> None:
    async def main() -> None:
        toys = {"a": ToyConfig(), "b": ToyConfig()}
        async with World(toys, [edge("home", "a", "b"), edge("a", "home"), edge("b", "home")]) as world:
            world.signal("b", signal.SIGKILL)
            await world.until_ready("b", restarts=1)
            [(_, epoch)] = world.restarts()
            await world.until(lambda: world.reports("a") == [Report("peer b", epoch)])
            for number in range(100):
                world.send("a", Item(number, bytes(2_000)))
            await world.until(lambda: world.items("a") == world.items("b") == list(range(100)))

    run(main())


def test_an_actor_that_dies_too_often_loses_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "RESTARTS_PER_MINUTE_MAX", 2)

    async def main() -> None:
        sick = ToyConfig(start_error="no toys left", fails_from=2, lives=str(tmp_path / "lives"))
        async with World({"a": sick, "b": ToyConfig()}, to_and_from_home("a", "b")) as world:
            world.signal("a", signal.SIGKILL)
            await world.until(lambda: world.supervisor.lost is not None)
            assert world.supervisor.lost == "a: died too often, last because: no toys left"
            assert world.events[-1] == f"the engine is lost: {world.supervisor.lost}"
            states = {name: each.state for name, each in world.supervisor.health().items()}
            assert states == {"a": State.DEAD, "b": State.READY}
            pid = world.pid("b")
            world.signal("b", signal.SIGKILL)
            wait_gone([pid], 2.0)
            await asyncio.sleep(0.05)
            assert world.supervisor.health()["b"].state is State.DEAD

    run(main())


def test_stop_in_the_middle_of_a_restart_leaves_nothing() -> None:
    async def main() -> None:
        async with World(CHAIN, CHAIN_EDGES) as world:
            world.signal("b", signal.SIGKILL)
            await world.until(lambda: bool(world.restarts()))

    run(main())


def _stop_the_loop(seconds: float) -> None:
    """Do to this process what a stopped process group does."""
    time.sleep(seconds)


class Unknown(Item, frozen=True):
    """A message that no toy expects."""
