"""What the engine costs on a CPU, part by part, and the change against the last line: `make bench`.

A part repeats its measurement in rounds. Between the rounds the machine itself is measured (its
anchors), since it is shared and its speed comes and goes; figures of two runs are compared in units
of the anchors. Each run of a part becomes a JSON line of `benchmarks/suite.jsonl`.
"""
