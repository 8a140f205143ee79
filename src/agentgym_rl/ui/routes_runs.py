"""Routes that read: runs, metrics, evaluations, episodes and their tokens."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query
from starlette.responses import Response

from agentgym_rl.ui.answers import answer
from agentgym_rl.ui.config_difference import config_difference, repeating_command
from agentgym_rl.ui.diagnosis import diagnosis, time_of_steps
from agentgym_rl.ui.episode_lists import facets, list_episodes
from agentgym_rl.ui.evaluations import EvaluationName
from agentgym_rl.ui.filters import EpisodePage
from agentgym_rl.ui.group_view import group_view
from agentgym_rl.ui.reader import RunReader
from agentgym_rl.ui.series import columns_of, names_of

Run = Annotated[str, Query(max_length=1000)]
Number = Annotated[int | None, Query(ge=-(2**31), lt=2**31)]
Word = Annotated[str | None, Query(max_length=1000)]
Place = Annotated[int, Query(ge=0, lt=2**31)]


def run_routes(reader: RunReader) -> APIRouter:
    router = APIRouter(prefix="/api", default_response_class=Response)
    _add_runs(router, reader)
    _add_episodes(router, reader)
    return router


def _add_runs(router: APIRouter, reader: RunReader) -> None:
    catalog = reader.catalog

    @router.get("/runs")
    def runs() -> Response:
        return answer(reader.overview.runs())

    @router.get("/config")
    def config(run: Run) -> Response:
        found = catalog.config(run)
        command = repeating_command(catalog, run)
        own = {"toml": found.text, "file": found.file, "problem": found.problem}
        return answer(own | {"command": command})

    @router.get("/config_difference")
    def difference(run: Run, other: Run) -> Response:
        return answer(config_difference(catalog, run, other))

    @router.get("/metric_names")
    def metric_names(run: Run) -> Response:
        series = catalog.series(run)
        names = {*names_of(series.rows()), *reader.evaluations.curves(run)}
        return answer({"names": sorted(names), "problem": series.problem})

    @router.get("/metrics")
    def metrics(run: Run, names: Word = None, after: Number = None) -> Response:
        series = catalog.series(run)
        rows = series.rows()
        wanted = names.split(",") if names else names_of(rows)
        if after is not None:
            rows = [row for row in rows if (row["step"] or 0) > after]
        return answer(columns_of(rows, wanted) | {"problem": series.problem})

    @router.get("/eval_curves")
    def eval_curves(run: Run) -> Response:
        return answer({"curves": reader.evaluations.curves(run)})

    @router.get("/evaluations")
    def evaluations() -> Response:
        return answer(reader.evaluations.listed())

    @router.get("/evaluation")
    def evaluation(run: Run, env: Run, step: Place = 0) -> Response:
        return answer(reader.evaluations.report(EvaluationName(run, step, env)))

    @router.get("/compare")
    def compare(
        run_a: Run, env_a: Run, run_b: Run, env_b: Run, step_a: Place = 0, step_b: Place = 0
    ) -> Response:
        a, b = EvaluationName(run_a, step_a, env_a), EvaluationName(run_b, step_b, env_b)
        return answer(reader.evaluations.compare(a, b))

    @router.get("/reports")
    def reports(run: Run) -> Response:
        return answer(reader.reports(run))


def _add_episodes(router: APIRouter, reader: RunReader) -> None:
    @router.get("/facets")
    def facets_of(run: Run) -> Response:
        return answer(facets(reader.index(run)))

    @router.get("/episodes")
    def episodes(page: Annotated[EpisodePage, Query()]) -> Response:
        return answer(list_episodes(reader.index(page.run), page))

    @router.get("/episode")
    def episode(run: Run, episode: Run) -> Response:
        return answer(reader.episode(run, episode))

    @router.get("/picture")
    def picture(run: Run, episode: Run, name: Run) -> Response:
        found = reader.picture(run, episode, name)
        return Response(found, media_type="image/png" if name.endswith(".png") else "image/jpeg")

    @router.get("/tokens")
    def tokens(run: Run, episode: Run, sample: Place = 0) -> Response:
        return answer(reader.tokens(run, episode, sample))

    @router.get("/group")
    def group(run: Run, step: Place, group: Place, phase: Run = "train") -> Response:
        wanted = EpisodePage(run=run, phase=phase, step_min=step, step_max=step, group=group)
        return answer(
            group_view(reader.index(run), wanted, lambda episode: reader.record(run, episode))
        )

    @router.get("/diagnosis")
    def diagnosis_of(run: Run) -> Response:
        return answer(diagnosis(reader.index(run), reader.catalog.series(run)))

    @router.get("/time")
    def time(run: Run) -> Response:
        return answer(time_of_steps(reader.index(run), reader.catalog.series(run)))
