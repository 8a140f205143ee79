"""Four chat families in miniature, and small models of their architectures.

Each tokenizer is a real BPE, trained here on a few lines, with the pre-tokenizer, special tokens
and message format of its family. Everything is built once a session.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache

import torch
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    trainers,
)
from transformers import (
    AutoModelForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen3Config,
)

from agentgym_rl.models.attention import ATTENTION
from agentgym_rl.models.chat import ChatRenderer
from agentgym_rl.models.loading import Policy

FAMILIES = ("qwen", "llama3", "gemma", "smollm2")
ARCHITECTURES = ("qwen2", "qwen3", "llama", "mistral", "gemma3")

WINDOW = 16
"""How far back the sliding layers of the small models look."""

_CORPUS = (
    "system\nuser\nassistant\nmodel\n",
    "You are a helpful assistant. You can see a red ball 3 steps in front of you.\n",
    "Thought: I have to pick up the blue key, then open the door.\n\nAction: go to blue key 1\n",
    "Craft 1 stick using 2 planks; get 100 oak logs, craft 100 planks. Done!\n\nYou've won 2024.",
    "the theory of the thing: (a, b) -> [c] {d} == e != f <g> |h| 100-200-300\n\n\n    indented",
    "Übergröße café naïve 日本語のテキスト русский текст 🙂🙃 \t tabs \t and   spaces   \r\n",
) * 3

_BYTE_LEVEL_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How GPT-4 and its followers cut text into words; the number is the longest run of digits."""


@dataclass(frozen=True, slots=True)
class Family:
    """A tokenizer with its chat template."""

    name: str
    tokenizer: PreTrainedTokenizerFast
    renderer: ChatRenderer
    special_words: tuple[str, ...]
    end_of_turn: int
    other_stops: tuple[int, ...]
    """Stop tokens beside the end of turn: the end of a text, where it is another token."""

    @property
    def stops(self) -> tuple[int, ...]:
        return (self.end_of_turn, *self.other_stops)


@cache
def family(name: str) -> Family:
    """Return a family by its name in FAMILIES."""
    tokenizer, end_of_turn, other_stops = {
        "qwen": _qwen,
        "llama3": _llama3,
        "gemma": _gemma,
        "smollm2": _smollm2,
    }[name]()
    return Family(
        name=name,
        tokenizer=tokenizer,
        renderer=ChatRenderer(tokenizer),
        special_words=tuple(sorted(tokenizer.all_special_tokens)),
        end_of_turn=tokenizer.convert_tokens_to_ids(end_of_turn),
        other_stops=tuple(tokenizer.convert_tokens_to_ids(word) for word in other_stops),
    )


def small_model(
    architecture: str, *, vocab_size: int, attention: str = ATTENTION
) -> PreTrainedModel:
    """Return a model of two narrow layers with random weights, the same for every `attention`."""
    config_class, changes = {
        "qwen2": (Qwen2Config, {}),
        "qwen3": (Qwen3Config, {"head_dim": 8}),
        "llama": (LlamaConfig, {}),
        "mistral": (MistralConfig, {"head_dim": 8, "sliding_window": WINDOW}),
        "gemma3": (
            Gemma3TextConfig,
            {
                "head_dim": 8,
                "query_pre_attn_scalar": 8,
                "sliding_window": WINDOW,
                "layer_types": ["sliding_attention", "full_attention"],
            },
        ),
    }[architecture]
    config = config_class(
        vocab_size=vocab_size,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        # Wide enough for the distributions to be far from uniform.
        initializer_range=0.2,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **changes,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    return model.eval()


def small_policy(architecture: str, family_name: str = "qwen") -> Policy:
    """Return a new policy; its model's vocabulary is that of the family's tokenizer."""
    chat = family(family_name)
    model = small_model(architecture, vocab_size=len(chat.tokenizer))
    return Policy(model=model, tokenizer=chat.tokenizer, renderer=chat.renderer)


def _qwen() -> tuple[PreTrainedTokenizerFast, str, tuple[str, ...]]:
    """ChatML with a default system message; digits are cut one by one."""
    tokenizer = _byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_BYTE_LEVEL_WORDS % 1), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        ),
        normalizer=normalizers.NFC(),
    )
    # A marker that is no special token: text may write it.
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    return (
        _fast(
            tokenizer,
            _chatml("You are a small model. Help as well as you can."),
            words=("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
            eos_token="<|im_end|>",
            pad_token="<|endoftext|>",
        ),
        "<|im_end|>",
        (),
    )


def _smollm2() -> tuple[PreTrainedTokenizerFast, str, tuple[str, ...]]:
    """ChatML again, with GPT-2's way to cut words."""
    tokenizer = _byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
    )
    return (
        _fast(
            tokenizer,
            _chatml("You are smaller still, and kind."),
            words=("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<repo_name>"),
            bos_token="<|im_start|>",
            eos_token="<|im_end|>",
        ),
        "<|im_end|>",
        (),
    )


def _llama3() -> tuple[PreTrainedTokenizerFast, str, tuple[str, ...]]:
    """Headers, trimmed contents, and an end of turn that is not the end of a text."""
    tokenizer = _byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(_BYTE_LEVEL_WORDS % 3), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    )
    header = "<|start_header_id|>{{ %s }}<|end_header_id|>\n\n"
    template = (
        "{{ bos_token }}{% for message in messages %}"
        + header % "message['role']"
        + "{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
        + "{% if add_generation_prompt %}"
        + header % "'assistant'"
        + "{% endif %}"
    )
    return (
        _fast(
            tokenizer,
            template,
            words=("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
            bos_token="<|begin_of_text|>",
            eos_token="<|end_of_text|>",
        ),
        "<|eot_id|>",
        ("<|end_of_text|>",),
    )


def _gemma() -> tuple[PreTrainedTokenizerFast, str, tuple[str, ...]]:
    """Turns of "user" and "model", no system message, spaces as "▁", unknown letters as bytes."""
    template = (
        "{{ bos_token }}{% for message in messages %}"
        "{% if message['role'] == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "<start_of_turn>{{ 'model' if message['role'] == 'assistant' else message['role'] }}\n"
        "{{ message['content'] | trim }}<end_of_turn>\n{% endfor %}"
        "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    )
    return (
        _fast(
            _metaspace(),
            template,
            words=("<start_of_turn>", "<end_of_turn>"),
            bos_token="<bos>",
            eos_token="<eos>",
            unk_token="<unk>",
        ),
        "<end_of_turn>",
        ("<eos>",),
    )


def _chatml(default_system: str) -> str:
    turn = "<|im_start|>%s\n%s<|im_end|>\n"
    return (
        "{% if messages[0]['role'] != 'system' %}"
        + turn % ("system", default_system)
        + "{% endif %}{% for message in messages %}"
        + turn % ("{{ message['role'] }}", "{{ message['content'] }}")
        + "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )


def _byte_level(
    pre_tokenizer: pre_tokenizers.PreTokenizer, normalizer: normalizers.Normalizer | None = None
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_CORPUS, trainer)
    return tokenizer


def _metaspace() -> Tokenizer:
    """A BPE over letters as SentencePiece makes it: no pre-tokenizer, no space put in front."""
    learner = Tokenizer(models.BPE())
    learner.normalizer = normalizers.Replace(" ", "▁")
    # While it learns, no token spans two words or a newline and a word.
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r"\n+"), "isolated"),
            pre_tokenizers.Split("▁", "merged_with_next"),
        ]
    )
    learner.train_from_iterator(_CORPUS, trainers.BpeTrainer(vocab_size=320, show_progress=False))
    learned = json.loads(learner.to_str())["model"]
    words = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *learned["vocab"]]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={word: index for index, word in enumerate(words)},
            merges=[tuple(pair) for pair in learned["merges"]],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _fast(
    tokenizer: Tokenizer, template: str, *, words: tuple[str, ...], **named: str
) -> PreTrainedTokenizerFast:
    """Return it for transformers, with `words` and the `named` tokens (eos_token, ...) special."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, extra_special_tokens=list(words), **named
    )
    fast.chat_template = template
    return fast
