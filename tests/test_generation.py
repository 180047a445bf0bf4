from __future__ import annotations

from tokenspeed.generation import GenerationDefaults
from tokenspeed.sampling import SamplingParams


def test_what_is_asked_wins_and_null_is_not_asked() -> None:
    defaults = GenerationDefaults(temperature=0.6, top_k=20, source="generation_config.json")
    assert defaults.fill({"temperature": 0.0, "top_k": None, "seed": 3}) == {"temperature": 0.0, "top_k": 20, "seed": 3}
    assert defaults.sampling() == SamplingParams(temperature=0.6, top_k=20)
    assert GenerationDefaults().sampling() == SamplingParams()
