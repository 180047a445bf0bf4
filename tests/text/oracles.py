"""Dumb tokenizers to check the real one against: written from the rules, not for speed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

import regex  # type: ignore[import-untyped]

from tokenspeed.text.byte_level import CHAR_OF_BYTE

GPT2_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def words_of(text: str, *, digits_alone: bool) -> list[str]:
    """Return the words that merges never cross."""
    stretches = regex.findall(r"\p{N}|\P{N}+", text) if digits_alone else [text]
    return [word for stretch in stretches for word in regex.findall(GPT2_WORDS, stretch)]


def byte_level_ids(words: Iterable[str], vocab: dict[str, int], merges: list[str]) -> list[int]:
    """Return the ids of `words`: the merge of the lowest rank first, everywhere at once, until none applies."""
    ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
    ids: list[int] = []
    for word in words:
        symbols = [CHAR_OF_BYTE[byte] for byte in word.encode("utf-8")]
        while True:
            pairs = set(itertools.pairwise(symbols)) & ranks.keys()
            if not pairs:
                break
            symbols = merged(symbols, min(pairs, key=ranks.__getitem__))
        ids += [vocab[symbol] for symbol in symbols]
    return ids


def merged(symbols: list[str], pair: tuple[str, ...]) -> list[str]:
    """Return `symbols` with each occurrence of `pair`, from the left, made one."""
    result: list[str] = []
    rest = iter(range(len(symbols)))
    for index in rest:
        if tuple(symbols[index : index + 2]) == pair:
            result.append("".join(pair))
            next(rest)
        else:
            result.append(symbols[index])
    return result


def sentencepiece_ids(text: str, tokens: list[str], scores: list[float], normal: set[str]) -> list[int]:
    """Return the ids of `text`: the neighbours whose union has the best score first, the leftmost of equals."""
    symbols = list(text.replace(" ", "▁"))
    score = dict(zip(tokens, scores, strict=True))
    while True:
        unions = [(score[a + b], -i) for i, (a, b) in enumerate(itertools.pairwise(symbols)) if a + b in normal]
        if not unions:
            break
        place = -max(unions)[1]
        symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
    ids: list[int] = []
    for symbol in symbols:
        if symbol in normal:
            ids.append(tokens.index(symbol))
        else:
            ids += [tokens.index(f"<0x{byte:02X}>") for byte in symbol.encode("utf-8")]
    return ids
