"""Chat templates that show tools, with the structure of three families, and tokenizers for them.

hermes     tools in the system message, calls in <tool_call>, answers in a user's turn (Qwen 2.5)
llama31    tools in the first user's message, bare JSON calls, answers as JSON from "ipython"
mistral    tools before the latest user's message, calls and answers with ids
"""

from __future__ import annotations

from copy import deepcopy
from functools import cache

from transformers import PreTrainedTokenizerBase

from chat_families import family
from fake_engines import fake_renderer

_HERMES = (
    "{% set has_system = messages[0].role == 'system' %}"
    "<|im_start|>system\n{{ messages[0].content if has_system else 'Be of use.' }}"
    "{% if tools %}\n\n# Tools\n<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}"
    '\n</tools>\nCall one so:\n<tool_call>\n{"name": NAME, "arguments": OBJECT}\n</tool_call>'
    "{% endif %}<|im_end|>\n"
    "{% for message in messages %}"
    "{% if message.role == 'system' and loop.first %}"
    "{% elif message.role == 'tool' %}"
    "{% if messages[loop.index0 - 1].role != 'tool' %}<|im_start|>user{% endif %}"
    "\n<tool_response>\n{{ message.content }}\n</tool_response>"
    "{% if loop.last or messages[loop.index0 + 1].role != 'tool' %}<|im_end|>\n{% endif %}"
    "{% else %}<|im_start|>{{ message.role }}"
    "{% if message.content %}\n{{ message.content }}{% endif %}"
    "{% for call in message.tool_calls or [] %}"
    '\n<tool_call>\n{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
).replace("%}\n", "%}{{ '\\n' }}")  # a newline right after a block is dropped

_HEADER = "<|start_header_id|>%s<|end_header_id|>\n\n"
_LLAMA31 = (
    "{{ bos_token }}" + _HEADER % "system" + "{% if tools %}Environment: ipython\n{% endif %}"
    "{% if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}<|eot_id|>"
    "{% set rest = messages[1:] if messages[0].role == 'system' else messages %}"
    "{% for message in rest %}"
    "{% if 'tool_calls' in message %}"
    "{% if message.tool_calls | length != 1 %}{{ raise_exception('one call') }}{% endif %}"
    "{% set function = message.tool_calls[0].function %}"
    + _HEADER
    % "assistant"
    + '{"name": "{{ function.name }}", "parameters": {{ function.arguments | tojson }}}<|eot_id|>'
    "{% elif message.role == 'tool' %}"
    + _HEADER
    % "ipython"
    + "{{ message.content | tojson }}<|eot_id|>"
    "{% else %}"
    + _HEADER
    % "{{ message.role }}"
    + "{% if tools and loop.first %}Reply with JSON for a call of one of these functions:\n"
    "{% for tool in tools %}{{ tool | tojson(indent=4) }}\n\n{% endfor %}{% endif %}"
    "{{ message.content | trim }}<|eot_id|>"
    "{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}" + _HEADER % "assistant" + "{% endif %}"
)

_MISTRAL = (
    "{{ bos_token }}{% set asked = messages | selectattr('role', 'equalto', 'user') | list %}"
    "{% for message in messages %}"
    "{% if message.role == 'user' %}"
    "{% if tools and message == asked[-1] %}"
    "[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]{% endif %}"
    "[INST] {{ message.content }}[/INST]"
    "{% elif message.tool_calls %}[TOOL_CALLS] ["
    '{% for call in message.tool_calls %}{"name": "{{ call.function.name }}", '
    '"arguments": {{ call.function.arguments | tojson }}, "id": "{{ call.id }}"}{% endfor %}]</s>'
    "{% elif message.role == 'tool' %}"
    '[TOOL_RESULTS] {"content": {{ message.content }}, "call_id": "{{ message.tool_call_id }}"}'
    "[/TOOL_RESULTS]"
    "{% else %} {{ message.content }}</s>{% endif %}{% endfor %}"
)
_MISTRAL_WORDS = (
    *("[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]"),
    *("[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]"),
)

TOOL_FAMILIES = ("hermes", "tiny", "llama31", "mistral")
"""The tiny one is "hermes" with the tokenizer of the fake engines."""


@cache
def tool_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """Return a tokenizer with the template of a family in TOOL_FAMILIES."""
    tokenizer = deepcopy(
        fake_renderer()._tokenizer
        if name == "tiny"
        else family("llama3" if name == "llama31" else "qwen").tokenizer
    )
    if name == "mistral":
        tokenizer.add_special_tokens({"bos_token": "<s>", "eos_token": "</s>"})
        tokenizer.add_special_tokens({"extra_special_tokens": list(_MISTRAL_WORDS)})
    tokenizer.chat_template = {"llama31": _LLAMA31, "mistral": _MISTRAL}.get(name, _HERMES)
    return tokenizer
