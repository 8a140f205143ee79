"""What a BabyAI agent sees, in hand-made rooms and against minigrid's own field of view."""

import random

import numpy as np
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Box, Door, Key, WorldObj
from minigrid.envs.babyai.core.roomgrid_level import RoomGridLevel

from agentgym_rl.envs.scenarios.babyai.env import BabyAI
from agentgym_rl.envs.scenarios.babyai.levels import LEVELS
from agentgym_rl.envs.scenarios.babyai.simulator import make_simulator
from agentgym_rl.envs.scenarios.babyai.view import describe, look, visible_cells

EAST = 0


def room(*contents: tuple[int, int, WorldObj], heading: int = EAST) -> RoomGridLevel:
    """Return a walled room of 10 x 10 with the agent at (3, 5) and the given things in it."""
    simulator = make_simulator(LEVELS[0], seed=0)
    simulator.grid = Grid(10, 10)
    simulator.grid.wall_rect(0, 0, 10, 10)
    for x, y, content in contents:
        simulator.grid.set(x, y, content)
    simulator.agent_pos, simulator.agent_dir = (3, 5), heading
    return simulator


def lines_of(simulator: RoomGridLevel) -> list[str]:
    return describe(look(simulator), simulator.carrying).split("\n")


def test_positions_are_relative_to_the_heading():
    ball = (5, 4, Ball("red"))  # two to the east of the agent, one to the north
    assert lines_of(room(ball, heading=0))[0] == "red ball 1: 2 ahead, 1 left"
    assert lines_of(room(ball, heading=3))[0] == "red ball 1: 1 ahead, 2 right"
    assert lines_of(room(ball, heading=1))[0] == "no objects in view"


def test_equal_names_are_numbered_nearest_first():
    simulator = room((7, 5, Key("blue")), (5, 5, Key("blue")), (4, 5, Key("red")))
    assert lines_of(simulator) == [
        "red key 1: 1 ahead",
        "blue key 1: 2 ahead",
        "blue key 2: 4 ahead",
        "wall: 6 ahead",
        "carrying: nothing",
    ]


def test_doors_tell_their_state():
    simulator = room(
        (5, 4, Door("red", is_open=True)),
        (5, 5, Door("red")),
        (5, 6, Door("grey", is_locked=True)),
    )
    assert lines_of(simulator)[:3] == [
        "red door 1: closed, 2 ahead",
        "red door 2: open, 2 ahead, 1 left",
        "grey door 1: locked, 2 ahead, 1 right",
    ]


def test_numbers_of_doors_do_not_depend_on_their_state():
    near, far = Door("red"), Door("red")
    simulator = room((4, 4, near), (6, 4, far))
    near.is_open = True
    assert lines_of(simulator)[:2] == [
        "red door 1: open, 1 ahead, 1 left",
        "red door 2: closed, 3 ahead, 1 left",
    ]


def test_shut_doors_hide_what_is_behind_them():
    wall = [(5, y, Door("grey")) for y in range(1, 9)]
    behind = (7, 5, Ball("red"))
    assert not any("ball" in line for line in lines_of(room(*wall, behind)))
    opened = [*wall[:4], (5, 5, Door("grey", is_open=True)), *wall[5:]]
    assert "red ball 1: 4 ahead" in lines_of(room(*opened, behind))


def test_view_ends_seven_cells_ahead_and_three_to_the_side():
    assert lines_of(room((3, 2, Ball("red"))))[0] == "red ball 1: 3 left"
    assert lines_of(room((3, 1, Ball("red"))))[0] == "no objects in view"
    far = room((9, 5, Box("red")), (8, 5, Box("green")))
    assert lines_of(far)[:2] == ["green box 1: 5 ahead", "red box 1: 6 ahead"]


def test_what_is_carried_is_told():
    simulator = room()
    simulator.carrying = Key("purple")
    assert lines_of(simulator)[-1] == "carrying: purple key"


def test_visible_cells_are_those_of_minigrid():
    env, rng, num_compared = BabyAI(), random.Random(0), 0
    for task in BabyAI.tasks("test")[:80]:
        env.reset(task)
        for _ in range(6):
            simulator = env._simulator
            assert simulator is not None
            ours = {(cell.right + 3, 6 - cell.ahead) for cell in visible_cells(simulator)}
            assert ours == _minigrid_visible(simulator)
            num_compared += 1
            if env.step(rng.choice(env.available_actions())).is_last:
                break
    assert num_compared > 300


def _minigrid_visible(simulator: RoomGridLevel) -> set[tuple[int, int]]:
    """Return the lit cells (column, row) of minigrid's 7 x 7 view that lie inside the grid."""
    _, lit = simulator.gen_obs_grid()
    corner = np.array(simulator.agent_pos) + 6 * simulator.dir_vec - 3 * simulator.right_vec
    cells = set()
    for i, j in np.argwhere(lit):
        x, y = corner - j * simulator.dir_vec + i * simulator.right_vec
        if 0 <= x < simulator.width and 0 <= y < simulator.height:
            cells.add((int(i), int(j)))
    return cells
