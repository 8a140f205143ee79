"""The built-in model: a small decoder, and a tokenizer made from the environment's text.

Nothing is downloaded. Both save and load like any transformers model, so that everything that works
with the tiny model works with a large one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from agentgym_rl.config import TinyModelConfig
from agentgym_rl.models.attention import ATTENTION

_TURN_START, _TURN_END, _PAD = "<|im_start|>", "<|im_end|>", "<|endoftext|>"

MAX_CONTEXT = 2048
"""The longest sequence that the model accepts."""

_ROLES = ("user\n", "assistant\n")
"""The words of the chat template, which the model reads as well."""
# ChatML without a default system message.
_CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def train_tokenizer(texts: Iterable[str], *, vocab_size: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer trained on `texts`; it can encode any text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[_PAD, _TURN_START, _TURN_END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([*_ROLES, *texts], trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=_TURN_END, pad_token=_PAD)
    fast.chat_template = _CHAT_TEMPLATE
    return fast


def build_tiny_model(
    config: TinyModelConfig, tokenizer: PreTrainedTokenizerFast, *, seed: int
) -> PreTrainedModel:
    """Return a decoder with random weights that depend only on `seed`."""
    is_wide = config.hidden_size >= 64 and config.hidden_size % 32 == 0
    num_heads = config.hidden_size // 32 if is_wide else 2
    hf_config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=config.hidden_size,
        intermediate_size=3 * config.hidden_size,
        num_hidden_layers=config.num_layers,
        num_attention_heads=num_heads,
        num_key_value_heads=num_heads // math.gcd(num_heads, 2),
        head_dim=config.hidden_size // num_heads,
        max_position_embeddings=MAX_CONTEXT,
        tie_word_embeddings=True,
        # The usual 0.02 suits wide models; a narrow one learns much faster from 1/sqrt(width).
        initializer_range=config.hidden_size**-0.5,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(hf_config)
    model.set_attn_implementation(ATTENTION)
    return model


@torch.no_grad()
def quiet_unseen_tokens(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast, texts: Iterable[str]
) -> None:
    """Set the embeddings of tokens that occur in no text to zero.

    The tokenizer has all bytes, most of which an environment's text never uses. Random embeddings,
    which are also the rows of the head, would make a few of them likely by chance, and replies
    would contain broken bytes until training has suppressed each.
    """
    encoded = tokenizer([_TURN_START, _TURN_END, *_ROLES, *texts], add_special_tokens=False)[
        "input_ids"
    ]
    seen = set(itertools.chain.from_iterable(encoded))
    unseen = [token for token in range(len(tokenizer)) if token not in seen]
    embeddings = model.get_input_embeddings()
    assert isinstance(embeddings, nn.Embedding), "of a model that `build_tiny_model` made"
    embeddings.weight[unseen] = 0.0
