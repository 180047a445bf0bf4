"""The demo model in bfloat16 on a GPU, token by token beside transformers in bfloat16."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.conftest import Record
from tests.e2e.test_equal_tokens import prompt_ids
from tests.llamas import Driver, load
from tests.reference import Reference, transformers_model

TOKENS = 64
GAP = 0.05
AGREEMENT_MIN = 0.99


def _reference_rows(model: Path, sequences: list[list[int]], prompts: list[list[int]]) -> list[torch.Tensor]:
    """Return transformers' bfloat16 logits behind each of the last TOKENS positions, in float32."""
    half = transformers_model(model).to(torch.bfloat16).cuda()
    with torch.inference_mode():
        return [
            half(torch.tensor([ids], device="cuda")).logits[0, len(prompt) - 1 : -1].float().cpu()
            for ids, prompt in zip(sequences, prompts, strict=True)
        ]


def test_the_best_token_is_transformers_best(demo_model: Path, proof: Record) -> None:
    """Given the same tokens so far, prefill and then a graph per token choose as transformers does."""
    prompts = list(prompt_ids(demo_model).values())
    reference = Reference(demo_model)
    sequences = [prompt + reference.greedy(prompt, TOKENS).ids for prompt in prompts]
    rows = _reference_rows(demo_model, sequences, prompts)
    executor = load(
        demo_model,
        device="cuda",
        dtype="bfloat16",
        max_model_len=8192,
        page_tokens=64,
        max_num_seqs=32,
        kv_cache_bytes=0,
        chunked_prefill_size=2048,
    )
    driver = Driver(executor)
    chosen: list[list[int]] = []
    for slot, prompt in enumerate(prompts, 1):
        driver.open(slot)
        chosen.append(driver.run((slot, prompt, 0, True)))
    for index in range(TOKENS - 1):
        # Ids given and not read from the slot: a row of one token, which a graph computes.
        steps = [
            (slot, [ids[len(prompt) + index]], len(prompt) + index, True)
            for slot, (ids, prompt) in enumerate(zip(sequences, prompts, strict=True), 1)
        ]
        for ids, token in zip(chosen, driver.run(*steps), strict=True):
            ids.append(token)
    executor.close()
    best = [row.topk(2, dim=1) for row in rows]
    clear = torch.cat([top.values[:, 0] - top.values[:, 1] > GAP for top in best])
    agree = torch.cat([top.indices[:, 0] == torch.tensor(ids) for top, ids in zip(best, chosen, strict=True)])
    share = float(agree[clear].float().mean())
    proof(
        agreement=round(share, 5),
        positions=int(clear.sum()),
        agreement_everywhere=round(float(agree.float().mean()), 5),
    )
    assert share >= AGREEMENT_MIN
