"""The learner's memory on one device: weights, gradients, optimiser, and what a pass keeps.

Bytes of each trained weight, from training/learner/optimizer.py and models/sharding.py:

| | weight | optimiser | gradients | of a pass |
|---|---|---|---|---|
| one process, bfloat16 | 2 | 12: master 4, moments 8 | 4: their sum | 2 |
| one process, float32 | 4 | 8: moments | 4 | |
| N ranks, either | 4/N: its own master | 8/N | 4/N | |

A frozen weight beside LoRA has only the first column. With N ranks a layer is gathered when it
computes, and so is the root (embeddings and head).

What a pass keeps for its backward pass is counted from transformers' layers as they run here, per
token and layer (`_kept`); docs/scaling.md has the list and what was measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentgym_rl.sizing.plan import MemoryPlan
from agentgym_rl.sizing.shape import ModelShape

# As in models/chunked_logprobs.py, which imports torch; a test compares them.
LOSS_BYTES_ON_GPU = 1_900_000_000
LEAST_LOGITS_ON_GPU = 2**24
MAX_LOGITS_ON_CPU = 2**27
MAX_KEYS_PER_TOKEN = 8  # as in training/learner/packing.py


@dataclass(frozen=True, slots=True)
class LearnerBytes:
    """Of one process, on its device, and in the host's memory where that is another."""

    weights: int = 0
    optimizer: int = 0
    gradients: int = 0
    """Sums over the passes of an update."""
    of_pass: int = 0
    """Gradients that a backward pass leaves behind, until they are added to the sums."""
    gathered: int = 0
    """Whole layers, and their gradients, of sharded weights while they compute."""
    on_host: int = 0

    @property
    def least(self) -> int:
        """What an update cannot do without: any other number of tokens still needs it."""
        return self.weights + self.optimizer + self.gradients

    def plus(self, other: LearnerBytes) -> LearnerBytes:
        return LearnerBytes(
            self.weights + other.weights,
            self.optimizer + other.optimizer,
            self.gradients + other.gradients,
            self.of_pass + other.of_pass,
            max(self.gathered, other.gathered),
            self.on_host + other.on_host,
        )


def learner_bytes(shape: ModelShape, plan: MemoryPlan) -> LearnerBytes:
    """Return the memory of policy and critic, activations left out."""
    found = _model_bytes(shape, plan, num_weights=shape.num_weights)
    if plan.critic == "own":
        found = found.plus(_model_bytes(shape, plan, num_weights=shape.trunk_weights))
    return found


def _model_bytes(shape: ModelShape, plan: MemoryPlan, *, num_weights: int) -> LearnerBytes:
    trained = shape.adapter_weights(plan.lora_rank) if plan.lora_rank else num_weights
    frozen = num_weights if plan.lora_rank else 0
    if plan.ranks == 1:
        is_rounded = plan.element == 2
        found = LearnerBytes(
            weights=plan.element * (trained + frozen),
            optimizer=(12 if is_rounded else 8) * trained,
            gradients=4 * trained,
            of_pass=(2 * trained + 4 * _largest(shape, plan)) if is_rounded else 0,
        )
    else:
        found = LearnerBytes(
            weights=4 * (trained + frozen) // plan.ranks,
            optimizer=8 * trained // plan.ranks,
            gradients=4 * trained // plan.ranks,
            gathered=_gathered(shape, plan),
        )
    return _offloaded(found, plan, trained=trained)


def _offloaded(found: LearnerBytes, plan: MemoryPlan, *, trained: int) -> LearnerBytes:
    """Return the same with a part in the host's memory, where it takes 16 bytes a trained weight:
    masters, moments, and the gradients while AdamW computes."""
    if plan.offload == "none":
        return found
    kept = replace(found, optimizer=0, on_host=16 * trained // plan.ranks)
    if plan.offload == "all":  # with ranks only; shards are their own masters
        return replace(kept, weights=0, gradients=0)
    is_rounded = plan.ranks == 1 and plan.element == 2  # a sum is where its master is
    return replace(kept, gradients=0) if is_rounded else kept


def _largest(shape: ModelShape, plan: MemoryPlan) -> int:
    """Weights of the largest trained matrix, whose gradient is float32 for a moment."""
    if plan.lora_rank:
        return plan.lora_rank * max(shape.hidden, shape.feed_forward)
    return max(shape.head_weights, shape.hidden * shape.feed_forward)


def _gathered(shape: ModelShape, plan: MemoryPlan) -> int:
    """The root, the layer that computes and the next one; of what is trained, gradients.

    The gradient of the root stays until the end of the backward pass; what is summed over the ranks
    is float32.
    """
    gathered = plan.element * (shape.root_weights + 2 * shape.layer_weights)
    if plan.lora_rank:
        return gathered
    grads = plan.element * (shape.root_weights + shape.layer_weights)
    return gathered + grads + 4 * max(shape.root_weights, shape.layer_weights)


def activation_bytes(shape: ModelShape, plan: MemoryPlan, *, on_gpu: bool) -> int:
    """Return what the largest pass keeps for its backward pass, in policy and critic."""
    element, tokens = plan.element, plan.rank_tokens
    layer = tokens * _kept(shape, plan, on_gpu=on_gpu)
    inputs = tokens * shape.hidden * element
    layers = shape.layers * (inputs if plan.is_checkpointed else layer)
    # Embeddings, the last norm, and the hidden states that the head reads.
    ends = tokens * shape.hidden * (4 * element + 4)
    if plan.is_checkpointed:  # one layer is computed again, and its gradients with it
        ends += layer + 3 * element * tokens * shape.feed_forward
    return (layers + ends) * (2 if plan.critic == "own" else 1)


def _kept(shape: ModelShape, plan: MemoryPlan, *, on_gpu: bool) -> int:
    """Bytes that one layer keeps of one token."""
    element, hidden, query, kv = plan.element, shape.hidden, shape.query_width, shape.kv_width
    keys = kv * (MAX_KEYS_PER_TOKEN if plan.shares_prefix else 1)  # the most that a pass may keep
    if plan.is_compiled and on_gpu:
        # Elementwise work is done again: of each norm its input and output remain, of attention
        # queries, keys, values and output, of the feed-forward gate, up and their product.
        norms = 4 * element * hidden + element * (query + kv) * shape.has_head_norms
        return norms + element * (2 * query + 2 * keys + 3 * shape.feed_forward) + 4 * shape.heads
    # A norm keeps its input in float32, the normalised (for the gradient of its scale) and its
    # output, which the next layers read.
    scale = 0 if plan.lora_rank else element
    norms = 2 * hidden * (4 + scale + element)
    norms += (query + kv) * (4 + scale) * shape.has_head_norms
    # Flash attention keeps its inputs, its output and one sum per head.
    attention = element * (2 * query + 2 * keys) + 4 * shape.heads
    if not on_gpu:
        attention += element * query  # the sequences' outputs, put together
    elif element == 4:
        attention += 2 * element * (query - kv) * keys // kv  # keys and values for each head
    # Gate, up, the activated gate, and their product.
    return norms + attention + 4 * element * shape.feed_forward


def loss_bytes(shape: ModelShape, plan: MemoryPlan, *, on_gpu: bool) -> int:
    """Return what log-probabilities take beside the activations (models/chunked_logprobs.py).

    A chunk of logits with its gradient, and the gradient of the head. Every token counts as one
    that the agent wrote: few logits are one chunk, more are several of the same size.
    """
    head = 0 if plan.lora_rank else shape.head_weights
    num_logits = plan.rank_tokens * shape.vocab
    if not on_gpu:
        # Four float32 matrices by the code; six by the peak of a process (docs/scaling.md).
        return 24 * min(num_logits, MAX_LOGITS_ON_CPU) + 8 * head
    beside_part = (LOSS_BYTES_ON_GPU - 6 * head) // 10
    without_part = (LOSS_BYTES_ON_GPU - 4 * head) // 16
    chunk = min(num_logits, max(LEAST_LOGITS_ON_GPU, min(beside_part, without_part)))
    return max(6 * head + 10 * chunk, 4 * head + 16 * chunk)
