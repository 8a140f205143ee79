"""The 27 tasks of the paper: which categories of which environments they are.

The paper counts 27 tasks in five scenarios without listing them; these are the columns of its
tables, under nearly the same names: WebArena 5 (its table has GitLab and Reddit in one column),
deep search 7, TextCraft 4, BabyAI 6, SciWorld 5. Categories beyond them, such as "Other" of BabyAI
and SciWorld or those of questions that deep search has without data sets, are in our reports, but
not among the 27.
"""

from __future__ import annotations

PAPER_TASKS = {
    "webarena": ("Shopping", "CMS", "Maps", "GitLab", "Reddit"),
    "searchqa": (
        "nq",
        "triviaqa",
        "popqa",
        "hotpotqa",
        "2wikimultihopqa",
        "musique",
        "bamboogle",
    ),
    "textcraft": ("depth 1", "depth 2", "depth 3", "depth 4"),
    "babyai": ("GoTo", "Pickup", "ActionObjDoor", "FindObjS7", "OneRoomS20", "SynthLoc"),
    "sciworld": ("Measure", "Test-conductivity", "Find", "Chem-Mix", "Lifespan"),
}
"""Environment -> its categories (`Task.category`) that are tasks of the paper, in its order."""

NUM_PAPER_TASKS = sum(map(len, PAPER_TASKS.values()))
