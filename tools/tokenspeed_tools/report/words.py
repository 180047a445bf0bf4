"""How each figure of the page is made, in words. The formulas themselves are in `bench/summary.py`."""

from __future__ import annotations

DEFINITIONS = (
    ("TTFT", "Time to first token: from giving the request's bytes to the socket until the first piece of output."),
    (
        "ITL",
        "Inter-token latency: a piece of k tokens that comes g after the piece before it is k values of g / k. "
        "The longest pause is the largest g, undivided: what a reader sees.",
    ),
    ("TPOT", "Time per output token: of one request, the time behind its first piece over the tokens behind it."),
    (
        "TPM",
        "Tokens per minute of good requests, counted three ways: output; output and the input that was not cached; "
        "output and all input. The time is from the first sending to the last end, of requests that count.",
    ),
    ("per user", "Output tokens per second of one request, 1 / TPOT; the median over requests."),
    ("cached share of input", "Prompt tokens that the server says it had in its cache, of all prompt tokens."),
    ("failed", "Requests that ended with an error or were interrupted. No time and no token of theirs is in a figure."),
    ("warm-up", "Requests that were sent first, to warm the server. They are in no figure and in no plot."),
    ("p50, p90, p99", "Quantiles of all values, none left out, interpolated between neighbours (type 7)."),
    (
        "better, worse, same",
        "Against the first run of the page; below 1% is called the same, and ★ stands at the best. One run says "
        "nothing about noise: repeat runs before believing a small difference.",
    ),
)
