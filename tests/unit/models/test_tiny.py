"""The tiny model made on the spot."""

from __future__ import annotations

from agentgym_rl.config import TinyModelConfig
from agentgym_rl.models.tiny import build_tiny_model, quiet_unseen_tokens, train_tokenizer

TEXTS = ["go to the red ball", "you see a wall"]


def test_tokens_that_no_text_has_get_no_embedding_and_the_others_keep_theirs():
    tokenizer = train_tokenizer(TEXTS, vocab_size=320)
    config = TinyModelConfig(vocab_size=320, hidden_size=32, num_layers=1)
    model = build_tiny_model(config, tokenizer, seed=0)
    before = model.get_input_embeddings().weight.detach().clone()
    quiet_unseen_tokens(model, tokenizer, TEXTS)
    after = model.get_output_embeddings().weight  # the same matrix: they are tied
    seen = {token for text in TEXTS for token in tokenizer(text)["input_ids"]}
    seen |= set(tokenizer("<|im_start|>assistant\n<|im_end|>user\n")["input_ids"])
    for token in range(len(tokenizer)):
        assert after[token].any() == (token in seen), tokenizer.convert_ids_to_tokens(token)
        if token in seen:
            assert after[token].equal(before[token])
