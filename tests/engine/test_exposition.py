from __future__ import annotations

from tokenspeed.engine.exposition import Family, Histogram, Sample, exposition


def test_lines_are_those_of_the_text_format() -> None:
    families = [
        Family("a_total", "counter", "Back\\slash\nline.", [Sample(3, {"why": 'a"b\\c\nd'}), Sample(0.25)]),
        Family("b", "gauge", "B.", [Sample(1e30)]),
    ]
    assert exposition(families, {"m": "x"}).split("\n") == [
        "# HELP a_total Back\\\\slash\\nline.",
        "# TYPE a_total counter",
        'a_total{m="x",why="a\\"b\\\\c\\nd"} 3',
        'a_total{m="x"} 0.25',
        "# HELP b B.",
        "# TYPE b gauge",
        f'b{{m="x"}} {int(1e30)}',
        "",
    ]
    assert exposition([Family("c", "gauge", "C.", [Sample(1)])], {}) == "# HELP c C.\n# TYPE c gauge\nc 1\n"


def test_a_histogram_is_cumulative_and_its_bounds_belong_to_their_buckets() -> None:
    histogram = Histogram((0.1, 1, 2.5))
    for value, count in ((0.1, 1), (0.5, 2), (2.5, 1), (9.0, 1)):
        histogram.observe(value, count)
    assert [(sample.suffix, dict(sample.labels), sample.value) for sample in histogram.samples()] == [
        ("_bucket", {"le": "0.1"}, 1),
        ("_bucket", {"le": "1"}, 3),
        ("_bucket", {"le": "2.5"}, 4),
        ("_bucket", {"le": "+Inf"}, 5),
        ("_sum", {}, 12.6),
        ("_count", {}, 5),
    ]
