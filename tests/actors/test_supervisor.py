"""Starting, traffic and stopping, with real processes."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import pytest

from tests.actors.toys import Item, Order, ToyConfig
from tests.actors.world import RING_BYTES, World, edge, run, to_and_from_home
from tokenspeed.actors.mailbox import BACKLOG_BYTES_MAX
from tokenspeed.actors.supervisor import ActorSpec, EdgeSpec, State, Supervisor
from tokenspeed.errors import EngineError, StartError, UserError
from tokenspeed.observe.attach import attach
from tokenspeed.observe.page import Word

ONE = {"a": ToyConfig()}


def test_items_come_back_in_order() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            for number in range(1_000):
                world.send("a", Item(number))
            await world.until(lambda: len(world.items("a")) == 1_000)
            assert world.items("a") == list(range(1_000))

    run(main())


def test_a_full_ring_loses_and_reorders_nothing() -> None:
    async def main() -> None:
        slow = {"a": ToyConfig(item_takes_s=0.001)}
        async with World(slow, to_and_from_home("a")) as world:
            payload = bytes(RING_BYTES // 8)
            for number in range(100):
                world.send("a", Item(number, payload))
            assert world.supervisor.outbox.backlog("a") > 80 * len(payload)
            await world.until(lambda: len(world.items("a")) == 100)
            assert world.items("a") == list(range(100))
            assert world.supervisor.outbox.backlog("a") == 0

    run(main())


def test_a_message_larger_than_the_ring_arrives() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            payload = os.urandom(5 * RING_BYTES)
            world.send("a", Item(1, payload))
            world.send("a", Item(2))
            await world.until(lambda: world.items("a") == [1, 2])
            assert world.heard[0] == ("a", Item(1, payload))

    run(main())


def test_a_broadcast_reaches_every_reader_in_order() -> None:
    async def main() -> None:
        edges = [edge("home", "a", "b"), edge("a", "home"), edge("b", "home")]
        async with World({"a": ToyConfig(), "b": ToyConfig(item_takes_s=0.001)}, edges) as world:
            for number in range(200):
                world.send("a", Item(number, bytes(1_000)))
            await world.until(lambda: len(world.items("a")) == len(world.items("b")) == 200)
            assert world.items("a") == world.items("b") == list(range(200))

    run(main())


def test_actors_speak_to_each_other() -> None:
    async def main() -> None:
        toys = {"a": ToyConfig(forward_to="b"), "b": ToyConfig(forward_to="home")}
        async with World(toys, [edge("home", "a"), edge("a", "b"), edge("b", "home"), edge("a", "home")]) as world:
            for number in range(100):
                world.send("a", Item(number))
            await world.until(lambda: world.items("b") == list(range(100)))

    run(main())


def test_a_batch_is_handled_in_one_turn() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            for number in range(30):
                world.send("a", Item(number))
            await world.until(lambda: len(world.items("a")) == 30)
            world.send("a", Order("count"))
            await world.until(lambda: len(world.reports("a")) == 2)
            turns, items = world.reports("a")
            assert items.number == 30
            assert turns.number < 10

    run(main())


def test_reading_pauses_while_a_receiver_does_not_keep_up() -> None:
    """The toy floods `b` over its limit: it answers nobody before `b` has handled most of that."""

    async def main() -> None:
        toys = {"a": ToyConfig(forward_to="b"), "b": ToyConfig(forward_to="home", item_takes_s=0.001)}
        edges = [*to_and_from_home("a", "b"), edge("a", "b")]
        async with World(toys, edges) as world:
            engine = await asyncio.to_thread(attach, world.supervisor.folder.socket_path)
            line = engine.page.line(0)
            world.send("a", Order("flood", 400))  # 26 MB
            # Until the turn with the flood is over: what came meanwhile would be read in the same turn.
            await world.until(lambda: line[Word.BACKLOG_BYTES] > BACKLOG_BYTES_MAX)
            engine.close()
            world.send("a", Order("count"))
            await world.until(lambda: len(world.reports("a")) == 2)
            world.send("b", Order("count"))
            await world.until(lambda: len(world.reports("b")) == 2)
            assert world.reports("b")[1].number > 250
            await world.until(lambda: len(world.items("b")) == 400)
            assert world.items("b") == list(range(400))

    run(main())


def test_health_and_phases_while_starting() -> None:
    async def main() -> None:
        world = World({"a": ToyConfig(start_sleep_s=0.3)}, to_and_from_home("a"))
        starting = asyncio.create_task(world.supervisor.start())
        await world.until(lambda: "a: loads toys" in world.events)
        health = world.supervisor.health()["a"]
        assert (health.state, health.phase, health.restarts) == (State.STARTING, "loads toys", 0)
        await starting
        health = world.supervisor.health()["a"]
        assert (health.state, health.phase) == (State.READY, "")
        assert health.turn_age_s < 1
        await world.supervisor.stop()
        assert world.supervisor.health()["a"].state is State.STOPPED

    run(main())


def test_messages_sent_while_an_actor_starts_wait_for_it() -> None:
    async def main() -> None:
        world = World({"a": ToyConfig(start_sleep_s=0.2)}, to_and_from_home("a"))
        starting = asyncio.create_task(world.supervisor.start())
        await world.until(lambda: "a: loads toys" in world.events)
        world.send("a", Item(7))
        await starting
        await world.until(lambda: world.items("a") == [7])
        await world.supervisor.stop()

    run(main())


def test_start_fails_with_the_actors_own_words() -> None:
    async def main() -> None:
        toys = {"a": ToyConfig(), "b": ToyConfig(start_error="toys.gguf: cut in the middle")}
        with pytest.raises(StartError, match=r"^toys\.gguf: cut in the middle$") as caught:
            async with World(toys, to_and_from_home("a", "b")):
                pass
        assert (caught.value.status, caught.value.code) == (400, "toy_error")

    run(main())


def test_start_fails_with_the_name_of_an_actor_that_broke() -> None:
    async def main() -> None:
        supervisor = _supervisor(ActorSpec("a", "tests.actors.toys:Missing", ToyConfig()))
        with pytest.raises(StartError, match=r"^a: AttributeError: .*Missing"):
            await supervisor.start()

    run(main())


def test_start_fails_when_a_phase_takes_too_long() -> None:
    async def main() -> None:
        toys = {"a": ToyConfig(start_sleep_s=30, start_limit_s=0.2)}
        began = time.monotonic()
        with pytest.raises(StartError, match=r"^a: stuck in 'loads toys', no news for 0\.\d s$"):
            async with World(toys, to_and_from_home("a"), stall_limit_s=0.1):
                pass
        assert time.monotonic() - began < 2

    run(main())


def test_start_fails_when_an_actor_is_killed_while_it_starts() -> None:
    async def main() -> None:
        world = World({"a": ToyConfig(start_sleep_s=30)}, to_and_from_home("a"))
        starting = asyncio.create_task(world.supervisor.start())
        await world.until(lambda: "a: loads toys" in world.events)
        world.signal("a", signal.SIGKILL)
        with pytest.raises(StartError, match=r"^a: was killed by SIGKILL"):
            await starting

    run(main())


def test_a_cancelled_start_leaves_nothing() -> None:
    async def main() -> None:
        world = World({"a": ToyConfig(start_sleep_s=30)}, to_and_from_home("a"))
        starting = asyncio.create_task(world.supervisor.start())
        await world.until(lambda: "a: loads toys" in world.events)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

    run(main())


def test_stop_lets_actors_end_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        lives = tmp_path / "lives"
        async with World({"a": ToyConfig(lives=str(lives))}, to_and_from_home("a")) as world:
            await asyncio.gather(world.supervisor.stop(), world.supervisor.stop())
            assert lives.with_suffix(".stopped").exists()
            await world.supervisor.stop()

    run(main())


def test_stop_ends_an_actor_that_does_not_listen() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a"), stall_limit_s=60) as world:
            world.signal("a", signal.SIGSTOP)
            began = time.monotonic()
            await world.supervisor.stop(timeout_s=0.2)
            assert 0.2 <= time.monotonic() - began < 1

    run(main())


def test_two_engines_live_side_by_side() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as one, World(ONE, to_and_from_home("a")) as other:
            one.send("a", Item(1))
            other.send("a", Item(2))
            await one.until(lambda: one.items("a") == [1])
            await other.until(lambda: other.items("a") == [2])
            await one.supervisor.stop()
            other.send("a", Item(3))
            await other.until(lambda: other.items("a") == [2, 3])

    run(main())


def test_signals_of_the_terminal_are_the_parents() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            world.send("a", Order("interrupt"))
            world.send("a", Item(1))
            await world.until(lambda: world.items("a") == [1])
            assert world.supervisor.health()["a"].restarts == 0

    run(main())


def test_idle_actors_use_no_cpu() -> None:
    def cpu_ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            await asyncio.sleep(0.1)
            before = [cpu_ticks(pid) for pid in (world.pid("a"), os.getpid())]
            await asyncio.sleep(1.0)
            after = [cpu_ticks(pid) for pid in (world.pid("a"), os.getpid())]
            assert max(b - a for a, b in zip(before, after, strict=True)) <= 2  # of 100 ticks in a second

    run(main())


def test_no_edge_is_an_error_that_names_the_edges() -> None:
    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            with pytest.raises(EngineError, match=r"no edge leads to 'b'; edges lead to \['a'\]"):
                world.send("b", Item(1))

    run(main())


def _supervisor(*actors: ActorSpec) -> Supervisor:
    edges = [EdgeSpec("home", (actor.name,), RING_BYTES) for actor in actors]
    return Supervisor(actors, edges, "home", 5.0, _ignore, _ignore, _ignore, receives={})


def _ignore(*_: object) -> None:
    return


def test_an_actor_is_profiled_on_request() -> None:
    """The file is the caller's; one that gives up leaves none; a refusal and a death are told."""

    async def main() -> None:
        async with World(ONE, to_and_from_home("a")) as world:
            supervisor = world.supervisor
            path = await supervisor.profile("a", 0.01)
            assert path.read_text() == "kernels"
            path.unlink()
            with pytest.raises(UserError, match="toys play forward"):
                await supervisor.profile("a", -1)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(supervisor.profile("a", 0.3), 0.05)
            await supervisor.profile("a", 0.4)
            assert [each.name for each in supervisor.folder.path.glob("profile.*")] == ["profile.4"]
            dying = asyncio.create_task(supervisor.profile("a", 60))
            await asyncio.sleep(0.05)
            world.signal("a", signal.SIGKILL)
            with pytest.raises(EngineError, match="killed by SIGKILL"):
                await dying

    run(main())
