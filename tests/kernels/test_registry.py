"""Which kernel is chosen, why, and who may say otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tokenspeed_kernels import REGISTRY, KernelError, KernelSpec, Platform, Registry, Selector, ask, override_kernels
from tokenspeed_kernels.selection import ENVIRONMENT, parse_overrides
from tokenspeed_kernels.spec import Capability

ENTRY = "tokenspeed_kernels.gemm.torch_linear:linear"
HALF = frozenset({torch.float16})
CPU = (Capability("cpu"),)
GPU = (Capability("cuda", (8, 0), (9, 0)),)


def _spec(solution: str, **changes: object) -> KernelSpec:
    values: dict[str, object] = {
        "name": f"{solution}_kernel",
        "family": "toy",
        "mode": "spin",
        "solution": solution,
        "entry": ENTRY,
        "capability": CPU,
        "dtypes": HALF,
    }
    return KernelSpec(**{**values, **changes})  # type: ignore[arg-type]


PLAIN = _spec("plain")
QUICK = _spec("quick", priority=5, traits={"head_dim": frozenset({64, 128})}, tags=frozenset({"latency"}))
WIDE = _spec("wide", priority=9, features=frozenset({"sinks"}), tags=frozenset({"throughput"}))
FOREIGN = _spec("foreign", capability=GPU, dtypes=frozenset({torch.bfloat16}), priority=99)
OTHER = _spec("other", mode="stop")
TOYS = Registry((PLAIN, QUICK, WIDE, FOREIGN, OTHER))
QUESTION = ask("toy", "spin", torch.float16, head_dim=64)


def _chosen(question: object = QUESTION, objective: str = "latency", **config: str) -> str:
    choice = Selector(TOYS, Platform("cpu"), objective, config).explain(question)  # type: ignore[arg-type]
    assert choice.chosen is not None
    return choice.chosen.solution


def test_objective_ranks_before_priority() -> None:
    """A kernel made for the objective wins over one of higher priority."""
    assert _chosen() == "quick"
    assert _chosen(objective="throughput") == "wide"
    assert _chosen(objective="energy") == "wide"


def test_filters() -> None:
    """Traits, features and dtypes each take candidates away."""
    assert _chosen(ask("toy", "spin", torch.float16, head_dim=96)) == "wide"
    assert _chosen(ask("toy", "spin", torch.float16, ["sinks"], head_dim=64)) == "wide"
    with pytest.raises(KernelError, match="no kernel answers"):
        Selector(TOYS, Platform("cpu")).select_kernel(ask("toy", "spin", torch.int8))


def test_explain_says_everything_about_everyone() -> None:
    """Each candidate of the mode is listed once, with every reason."""
    text = str(Selector(TOYS, Platform("cpu")).explain(ask("toy", "spin", torch.float16, ["sinks"], head_dim=32)))
    assert text.splitlines() == [
        "toy.spin torch.float16 head_dim=32 on cpu (latency)",
        "  wide_kernel: chosen",
        "  quick_kernel: head_dim is 32, supported: " + QUICK_DIMS + "; lacks sinks",
        "  foreign_kernel: runs on cuda, not on cpu; takes torch.bfloat16, not torch.float16; lacks sinks",
        "  plain_kernel: lacks sinks",
    ]


QUICK_DIMS = ", ".join(map(str, frozenset({64, 128})))


@pytest.mark.parametrize(
    ("capability", "reason"),
    [((7, 5), "needs capability 8.0, the device has 7.5"), ((10, 0), "stops at capability 9.0"), ((9, 0), None)],
)
def test_capability(capability: tuple[int, int], reason: str | None) -> None:
    """Bounds of the device's capability are inclusive."""
    reasons = FOREIGN.why_not(ask("toy", "spin", torch.bfloat16), Platform("cuda", capability))
    assert (reasons == ()) if reason is None else (reason in reasons[0])


def test_what_is_not_installed_is_not_chosen() -> None:
    """A kernel that imports something absent is passed over, and says what it would need."""
    absent = _spec("absent", priority=9, requires=("json", "a_library_that_is_not_here"))
    choice = Selector(Registry((PLAIN, absent)), Platform("cpu")).explain(QUESTION)
    assert choice.chosen is PLAIN
    assert choice.candidates[1].reasons == ("needs a_library_that_is_not_here, which is not installed",)


def test_order_of_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    """Environment over context over argument over configuration; a longer key over a shorter."""
    selector = Selector(TOYS, Platform("cpu"), config={"toy": "wide", "toy.stop": "other"})

    def source(argument: str | None = None) -> tuple[str, str] | None:
        return selector.explain(QUESTION, argument).override

    assert source() == ("the configuration", "wide")
    assert source("plain") == ("the argument", "plain")
    with override_kernels({"toy": "quick"}):
        assert source("plain") == ("the context", "quick")
        monkeypatch.setenv(ENVIRONMENT, "toy=quick,toy.spin=plain")
        assert source("wide") == (f"the environment ({ENVIRONMENT})", "plain")
    monkeypatch.delenv(ENVIRONMENT)
    assert source() == ("the configuration", "wide")


@pytest.mark.parametrize("solution", ["foreign", "unheard_of"])
def test_an_override_is_checked(solution: str) -> None:
    """A solution that cannot answer is not used because somebody asked for it."""
    with pytest.raises(KernelError, match=f"override from the argument: {solution}"):
        Selector(TOYS, Platform("cpu")).select_kernel(QUESTION, solution)


def test_answers_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same question is looked up once, another override is another question."""
    selector = Selector(TOYS, Platform("cpu"))
    loads: list[str] = []
    load = KernelSpec.load

    def counted(self: KernelSpec) -> Callable[..., object]:
        loads.append(self.solution)
        return load(self)

    monkeypatch.setattr(KernelSpec, "load", counted)
    for _ in range(3):
        selector.select_kernel(QUESTION)
        selector.select_kernel(QUESTION, "plain")
    assert loads == ["quick", "plain"]


def test_overrides_are_parsed() -> None:
    """The form is family=solution or family.mode=solution, by commas."""
    assert parse_overrides(" a=b, c.d=e ,") == {"a": "b", "c.d": "e"}
    for wrong in ("a", "=b", "a="):
        with pytest.raises(KernelError, match=f'override "{wrong}"'):
            parse_overrides(wrong)


def test_names_are_unique() -> None:
    """Two kernels of one name could not be told apart."""
    with pytest.raises(KernelError, match="registered twice: plain_kernel"):
        Registry((PLAIN, PLAIN))


def test_every_registered_kernel_loads() -> None:
    """Each entry of the real catalogue names a function, and each family has a reference."""
    assert all(callable(spec.load()) for spec in REGISTRY.specs if not spec.missing())
    modes = {(spec.family, spec.mode) for spec in REGISTRY.specs}
    references = {(spec.family, spec.mode) for spec in REGISTRY.specs if "reference" in spec.tags}
    assert modes == references
