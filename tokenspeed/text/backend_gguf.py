"""The encoder of a GGUF file's vocabulary, built with the `tokenizers` library.

Knows how each kind of vocabulary cuts text before its merges apply ("pre-tokenizer"); GGUF files
name the kind, the rule itself was published with each model. Control marks are left out of what is
built, so that no text can become one.

Invariant: the library's tokenizer is complete when returned and never changed again, which is what
makes it safe to share between threads.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import GgufFile
from tokenspeed.text.byte_level import SPACE_MARK
from tokenspeed.text.vocabulary import Vocabulary
from tokenspeed.text.vocabulary_gguf import TokenType, gguf_tokens

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORD_OF_CASES = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
)
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _words_and_digits(digits: str) -> str:
    word, signs = r"[^\r\n\p{L}\p{N}]?\p{L}+", r" ?[^\s\p{L}\p{N}]+[\r\n]*"
    return f"{_CONTRACTIONS}|{word}|{digits}|{signs}|{_BLANKS}"


_LLAMA3 = _words_and_digits(r"\p{N}{1,3}")
_QWEN2 = _words_and_digits(r"\p{N}")
_TEKKEN = rf"{_WORD_OF_CASES[0]}|{_WORD_OF_CASES[1]}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
_GPT4O = (
    rf"{_WORD_OF_CASES[0]}{_CONTRACTIONS}?|{_WORD_OF_CASES[1]}{_CONTRACTIONS}?"
    rf"|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_BLANKS}"
)

_GPT2_KINDS = ("gpt-2", "gpt2", "mpt", "olmo", "jais", "trillion", "granite-docling", "phi-2")
_DIGIT_KINDS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_SPLITS = (
    dict.fromkeys(("llama3", "llama-v3", "llama-bpe", "falcon3", "smaug-bpe", "dbrx", "pixtral"), _LLAMA3)
    | dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "hunyuan", "megrez"), _QWEN2)
    | {"tekken": _TEKKEN}
    | dict.fromkeys(("gpt-4o", "llama4"), _GPT4O)
)
# These vocabularies hold whole words that their merges do not reach.
_WHOLE_WORDS_FIRST = ("llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral", "tekken")
_COMPOSED = ("qwen2", "deepseek-r1-qwen")

KINDS = (*_GPT2_KINDS, *_DIGIT_KINDS, *_SPLITS)


def gguf_backend(file: GgufFile, vocabulary: Vocabulary) -> Tokenizer:
    """Return the library's tokenizer for the metadata in `file`, without control marks."""
    texts, types = gguf_tokens(file)
    vocab = {text: index for index, text in enumerate(texts) if text not in vocabulary.marks}
    try:
        if file.need("tokenizer.ggml.model", str) == "gpt2":
            backend = _byte_level(file, vocab)
        else:
            backend = _sentencepiece(file, vocab, types)
    except StartError:
        raise
    except Exception as error:  # the library raises plain Exception
        raise StartError(f"{file.path}: its vocabulary cannot be used ({error}): convert it again.") from error
    backend.add_tokens(
        [
            AddedToken(text, normalized=False, special=False)
            for text, kind in zip(texts, types, strict=True)
            if kind == TokenType.USER_DEFINED and text in vocab
        ]
    )
    return backend


def _byte_level(file: GgufFile, vocab: dict[str, int]) -> Tokenizer:
    kind = file.get("tokenizer.ggml.pre", str) or ""
    merges = [(left, right) for left, _, right in (merge.partition(" ") for merge in _merges(file))]
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=kind in _WHOLE_WORDS_FIRST))
    backend.pre_tokenizer = _pre_tokenizer(file, kind)
    if kind in _COMPOSED:
        backend.normalizer = normalizers.NFC()
    return backend


def _merges(file: GgufFile) -> list[str]:
    merges = file.strings("tokenizer.ggml.merges")
    if not merges:
        raise StartError(f"{file.path} has a vocabulary without merges: convert it again.")
    return merges


def _pre_tokenizer(file: GgufFile, kind: str) -> pre_tokenizers.PreTokenizer:
    by_pattern = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    if kind in _GPT2_KINDS:
        return by_pattern
    if kind in _DIGIT_KINDS:
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), by_pattern])
    if kind in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[kind]), behavior="isolated")
        return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    seen = f"the unknown pre-tokenizer {kind}" if kind else "no pre-tokenizer named"
    raise StartError(f"{file.path} has {seen}; known are {', '.join(KINDS)}: convert it again or use another file.")


def _sentencepiece(file: GgufFile, vocab: dict[str, int], types: list[int]) -> Tokenizer:
    merges = _merges_by_score(vocab, types, file.floats("tokenizer.ggml.scores"))
    unknown = next((text for text, token in vocab.items() if types[token] == TokenType.UNKNOWN), None)
    backend = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    spaces: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    # Every text between control marks gets its own leading space, as these models were trained.
    if file.get("tokenizer.ggml.add_space_prefix", bool) is not False:
        spaces.insert(0, normalizers.Prepend(SPACE_MARK))
    backend.normalizer = normalizers.Sequence(spaces)
    return backend


def _merges_by_score(vocab: dict[str, int], types: list[int], scores: list[float]) -> list[tuple[str, str]]:
    """Return the pairs whose union is a token, best score first: sentencepiece merges by score alone."""
    if len(scores) != len(types):
        raise StartError(f"{len(types)} tokens have {len(scores)} scores")
    normal = {text for text, token in vocab.items() if types[token] == TokenType.NORMAL}
    ranked = sorted(normal, key=lambda text: (-scores[vocab[text]], vocab[text]))
    return [
        (text[:cut], text[cut:])
        for text in ranked
        for cut in range(1, len(text))
        if text[:cut] in normal and text[cut:] in normal
    ]
