"""Asks for a GPU when it is imported, as some libraries do."""

import torch

IS_THERE = torch.cuda.is_available()


def use_it(answers) -> None:
    answers.put((IS_THERE, float(torch.ones(2, device="cuda").sum())))
