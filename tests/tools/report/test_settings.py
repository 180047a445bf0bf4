"""Every setting that differs is named."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.report.settings import ABSENT, Setting, settings

from tests.tools.report.synthetic import a_run

VALUES = st.dictionaries(
    st.text("ab", min_size=1, max_size=2), st.integers(0, 2) | st.booleans() | st.text("x", max_size=1)
)


def test_settings_of_every_part_that_differ_are_named() -> None:
    one = a_run(workload={"turns": 6, "seed": 1}, notes={"kv": "f16"})
    target = msgspec.structs.replace(one.target, server="other 2", server_info={"flags": {"threads": 2}})
    client = msgspec.structs.replace(one.client, cores=4)
    other = msgspec.structs.replace(
        one, workload={"turns": 6, "seed": 2}, notes={"batch": "512"}, target=target, client=client, gpus=1, label="x"
    )
    assert [setting for setting in settings([one, other]) if setting.differs] == [
        Setting("gpus", ("0", "1")),
        Setting("workload.seed", ("1", "2")),
        Setting("target.server", ("tokenspeed 0.1.0", "other 2")),
        Setting("target.server_info.dtype", ("q4_1", ABSENT)),
        Setting("client.cores", ("2", "4")),
        Setting("notes.kv", ("f16", ABSENT)),
        Setting("target.server_info.flags.threads", (ABSENT, "2")),
        Setting("notes.batch", (ABSENT, "512")),
    ]


@given(st.lists(VALUES, min_size=1, max_size=4))
def test_no_key_of_any_run_is_lost(workloads: list[dict[str, object]]) -> None:
    found = {setting.name: setting for setting in settings([a_run(workload=each) for each in workloads])}
    for key in {key for each in workloads for key in each}:
        values = [(key in each, type(each.get(key)), each.get(key)) for each in workloads]
        assert found[f"workload.{key}"].differs == (len(set(values)) > 1)
