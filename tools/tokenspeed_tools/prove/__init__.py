"""Shows everything that is promised, and writes down what was seen: `make prove`.

A proof is a pytest test marked `prove`, or a command of `registry.COMMANDS`. It passes or fails,
and says its figures in lines `PROOF {json}`. Each run of one becomes a line in
`benchmarks/prove.jsonl`; what that file holds for the present source is not run again.
"""
