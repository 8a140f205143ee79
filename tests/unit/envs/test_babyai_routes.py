"""Shortest ways over seen free cells, worked out by hand in a room of 5 x 5 with walls."""

from minigrid.core.actions import Actions
from minigrid.core.grid import Grid
from minigrid.core.world_object import Ball, Door

from agentgym_rl.envs.scenarios.babyai.routes import Routes
from agentgym_rl.envs.scenarios.babyai.simulator import Pose

LEFT, RIGHT, FORWARD = Actions.left, Actions.right, Actions.forward
EAST, WEST = 0, 2
EVERYTHING = {(x, y) for x in range(5) for y in range(5)}


def room() -> Grid:
    grid = Grid(5, 5)
    grid.wall_rect(0, 0, 5, 5)
    return grid


def test_facing_stops_before_the_cell():
    routes = Routes(room(), Pose(1, 1, EAST), EVERYTHING)
    assert routes.to_face(3, 1) == (FORWARD,)
    assert routes.to_face(2, 1) == ()
    assert routes.to_face(1, 3) == (RIGHT, FORWARD)


def test_entering_walks_onto_the_cell():
    routes = Routes(room(), Pose(1, 1, EAST), EVERYTHING)
    assert routes.to_enter(3, 1) == (FORWARD, FORWARD)
    assert routes.to_enter(1, 1) == ()


def test_way_leads_round_an_obstacle():
    grid = room()
    grid.set(2, 1, Ball("red"))
    routes = Routes(grid, Pose(1, 1, EAST), EVERYTHING)
    # Down one row, two cells east, then up to the cell behind the ball.
    assert routes.to_enter(3, 1) == (RIGHT, FORWARD, LEFT, FORWARD, FORWARD, LEFT, FORWARD)


def test_unseen_cells_are_not_walked_on():
    seen = EVERYTHING - {(2, 1), (2, 2), (2, 3)}
    routes = Routes(room(), Pose(1, 1, EAST), seen)
    assert routes.to_enter(3, 1) is None
    assert routes.to_face(2, 1) == ()


def test_only_open_doors_are_walked_through():
    grid = room()
    for y in (1, 2, 3):
        grid.set(2, y, Door("red"))
    assert Routes(grid, Pose(1, 1, EAST), EVERYTHING).to_enter(3, 1) is None
    grid.set(2, 1, Door("red", is_open=True))
    assert Routes(grid, Pose(1, 1, EAST), EVERYTHING).to_enter(3, 1) == (FORWARD, FORWARD)


def test_answer_does_not_depend_on_earlier_questions():
    # Turning round is as short by the left as by the right.
    fresh = Routes(room(), Pose(2, 2, EAST), EVERYTHING).to_face(1, 2)
    asked = Routes(room(), Pose(2, 2, EAST), EVERYTHING)
    asked.to_enter(0, 0)
    assert fresh == asked.to_face(1, 2) == (LEFT, LEFT)
