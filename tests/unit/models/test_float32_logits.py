"""The output layer gives logits that are not rounded; on a CPU it is as it was."""

from __future__ import annotations

import copy

import torch
from torch import nn

from agentgym_rl.models.float32_logits import Float32Linear, keep_float32_logits
from chat_families import small_policy


def test_a_policy_has_such_a_head_and_the_same_weights():
    model = small_policy("llama").model
    head = model.get_output_embeddings()
    assert isinstance(head, Float32Linear)
    assert isinstance(head, nn.Linear)
    assert {name for name in model.state_dict() if "lm_head" in name} == {"lm_head.weight"}


def test_on_a_cpu_it_computes_what_it_did():
    model = small_policy("llama").model
    plain = copy.deepcopy(model)
    plain.get_output_embeddings().__class__ = nn.Linear
    hidden = torch.randn(2, 5, model.config.hidden_size)
    heads = model.get_output_embeddings(), plain.get_output_embeddings()
    assert torch.equal(heads[0](hidden), heads[1](hidden))
    rounded = [head.to(torch.bfloat16)(hidden.to(torch.bfloat16)) for head in heads]
    assert torch.equal(*rounded)


def test_a_head_of_another_kind_is_left_alone():
    model = small_policy("llama").model

    class OwnHead(nn.Linear):
        pass

    model.get_output_embeddings().__class__ = OwnHead
    keep_float32_logits(model)
    assert type(model.get_output_embeddings()) is OwnHead
