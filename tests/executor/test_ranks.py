"""Two ranks, given the same plans, yield the ids of one."""

from __future__ import annotations

import multiprocessing
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.llamas import Driver, executor_config, random_llama, save_folder
from tokenspeed.errors import StartError
from tokenspeed.executor.executor import Executor
from tokenspeed.executor.ranks import join_group

PROMPTS = [np.random.default_rng(4).integers(0, 260, size).tolist() for size in (7, 40)]


def _script(driver: Driver) -> list[list[int]]:
    """Greedy and sampled requests, chunked, then both decoding in one step."""
    outputs = [driver.generate(1, PROMPTS[1], 12, chunk=16)]
    driver.open(2, temperature=0.9, top_p=0.9, seed=3)
    driver.open(3)
    outputs.append(driver.run((2, PROMPTS[0], 0, True), (3, PROMPTS[1], 0, True)))
    outputs += [driver.run((3, None, 40 + step, True), (2, None, 7 + step, True)) for step in range(8)]
    return outputs


def _rank(path: Path, rank: int, rendezvous: str, answers: Connection) -> None:
    torch.set_num_threads(1)
    config = executor_config(path, rank=rank, ranks=2, rendezvous=rendezvous)
    executor = Executor.load(config, lambda phase, share: None)
    answers.send((executor.pages_total, _script(Driver(executor))))
    executor.close()


def test_two_ranks_equal_one(tmp_path: Path) -> None:
    """Each rank holds half of the heads, and all come to the same ids as one that holds them all."""
    path = save_folder(random_llama(vocab_size=260), tmp_path / "checkpoint")
    whole = Executor.load(executor_config(path), lambda phase, share: None)
    wanted = _script(Driver(whole))

    context = multiprocessing.get_context("spawn")
    pipes = [context.Pipe(duplex=False) for _ in range(2)]
    ranks = [
        context.Process(target=_rank, args=(path, rank, str(tmp_path / "rendezvous"), pipes[rank][1]))
        for rank in range(2)
    ]
    for process in ranks:
        process.start()
    try:
        for receiver, _ in pipes:
            assert receiver.poll(100), "a rank did not answer"
            pages_total, outputs = receiver.recv()
            assert outputs == wanted
            # Half of the heads: pages take half of the bytes, so that twice as many fit.
            assert pages_total[0] in (2 * whole.pages_total[0], 2 * whole.pages_total[0] + 1)
    finally:
        for process in ranks:
            process.join(10)
            process.kill()
    assert [process.exitcode for process in ranks] == [0, 0]


def test_ranks_need_a_place_to_meet(tmp_path: Path) -> None:
    """Without a file, or in a folder that is not there, the message names the place."""
    with pytest.raises(StartError, match="2 ranks need a rendezvous file"):
        join_group(0, 2, "")
    with pytest.raises(StartError, match=r"Rank 1 of 2 is to meet the others at .*/absent/file"):
        join_group(1, 2, str(tmp_path / "absent" / "file"))
