"""Makes tests/data/webarena_parity.json.xz: cases from WebArena's tasks, with the original's score.

Runs where the original evaluators are installed, and nowhere else:

    python3 -m venv original && original/bin/pip install libwebarena
    NLTK_DATA=FOLDER original/bin/python -m tools.webarena_parity.make_cases --browser PATH

FOLDER holds nltk's tokenizers/punkt_tab. A case is a task, an answer, the address of the last page,
the pages that exist, and the score. Answers and pages are made from the task's own references:
right ones, wrong ones, and right ones in other words. The judge of both sides is a rule: an answer
that has the reference in it is right. Left out are scripts too intricate to make a page for, and
helpers that ask the shop's interface for programs.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import tempfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tools.webarena_parity.made_pages import element_with

SITES = ("shopping", "shopping_admin", "reddit", "gitlab", "map", "wikipedia", "homepage")
TARGET = Path(__file__).parents[2] / "tests/data/webarena_parity.json.xz"
EVERY = {"string": 2, "fuzzy": 4, "url": 3, "html": 7}
"""Of each kind of task every this many are used, so that the file stays small."""
_KEPT = ("eval_types", "reference_answers", "reference_url", "program_html", "url_note")
_PAGES: dict[tuple[str, str], str] = {}
"""(host, path with query) -> body, of the case that is being scored."""

Json = dict[str, Any]


def address(site: str) -> str:
    return f"http://{site.replace('_', '-')}.test"


def with_addresses(text: str) -> str:
    for site in SITES:
        text = text.replace(f"__{site.upper()}__", address(site))
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--browser", required=True, help="a Chromium")
    browser = parser.parse_args().browser
    for site in SITES:
        os.environ[site.upper()] = address(site)  # the original reads them when it is imported
    os.environ.setdefault("OPENAI_API_KEY", "unused")
    import webarena  # type: ignore[import-not-found]  # only in the original's environment

    tasks = json.loads((Path(webarena.__path__[0]) / "test.raw.json").read_text("utf-8"))
    cases = [case for task in chosen(tasks) for case in cases_of(task)]
    score_all(tasks, cases, browser)
    used = {case["task"] for case in cases}
    table = {
        "tasks": {task["task_id"]: kept(task) for task in tasks if task["task_id"] in used},
        "cases": cases,
    }
    TARGET.write_bytes(lzma.compress(json.dumps(table, sort_keys=True).encode()))
    right = sum(case["score"] == 1 for case in cases)
    print(f"{len(cases)} cases of {len(used)} tasks, {right} right: {TARGET.stat().st_size} bytes")


def kept(task: Json) -> Json:
    evaluation = {name: task["eval"][name] for name in _KEPT if name in task["eval"]}
    evaluation["string_note"] = task["eval"].get("string_note", "")
    return {"intent": task["intent"], "eval": evaluation}


def kind_of(task: Json) -> str:
    types = task["eval"]["eval_types"]
    if "program_html" in types:
        return "html"
    if "url_match" in types:
        return "url"
    return "fuzzy" if "fuzzy_match" in task["eval"]["reference_answers"] else "string"


def chosen(tasks: list[Json]) -> Iterator[Json]:
    numbers = dict.fromkeys(EVERY, 0)
    for task in tasks:
        kind = kind_of(task)
        numbers[kind] += 1
        if numbers[kind] % EVERY[kind] == 0:
            yield task


def cases_of(task: Json) -> Iterator[Json]:
    """Yield the cases of one task, without their scores."""
    if kind_of(task) == "html":
        yield from _page_cases(task)
        return
    url = str(task["eval"]["reference_url"] or "")
    is_url = "url_match" in task["eval"]["eval_types"]
    lasts = list(_addresses(url)) if is_url else ["__MAP__/"]
    replies = list(_answers(task)) if "string_match" in task["eval"]["eval_types"] else [""]
    for number in range(max(len(lasts), len(replies))):
        last = lasts[number % len(lasts)]
        yield _case(task, replies[number % len(replies)], last, {})
    if is_url and len(replies) > 1:
        yield _case(task, replies[-1], lasts[0], {})


def _case(task: Json, answer: str, last: str, pages: dict[str, str]) -> Json:
    return {"task": task["task_id"], "answer": answer, "last": last, "pages": pages}


def _answers(task: Json) -> Iterator[str]:
    """Yield right, nearly right and wrong answers."""
    references = task["eval"]["reference_answers"]
    wanted = list[str]()
    for way in ("exact_match", "must_include", "fuzzy_match"):
        value = references.get(way, [])
        wanted += [value] if isinstance(value, str) else value
    whole = ", ".join(wanted)
    yield whole
    yield f'"{whole.upper()}"'
    yield f"The answer is {whole}."
    yield f"I found {wanted[0]}0 and 1{wanted[-1]}"
    yield ", ".join(wanted[:-1]) or "none"
    if len(wanted[0]) == 1:
        yield f"({wanted[0]})"
        yield f"{wanted[0]}/10"
        yield f"it has ${wanted[0]}; fine"
        yield f"{wanted[0]}. and more"
    if references.get("fuzzy_match") == "N/A":
        yield f"This cannot be done: {task['eval'].get('string_note', '')}"


def _addresses(wanted: str) -> Iterator[str]:
    """Yield addresses that are right, longer, without parameters, and wrong."""
    first, last = wanted.split(" |OR| ")[0], wanted.split(" |OR| ")[-1]
    yield last
    yield f"{first}/"
    yield f"{first}{'&' if '?' in first else '?'}more=1"
    yield first.partition("?")[0]
    yield "__MAP__/elsewhere"


def _page_cases(task: Json) -> Iterator[Json]:
    evaluation = task["eval"]
    texts = [_right_text(target) for target in evaluation["program_html"]]
    last = _last_url(evaluation)
    if any("func:shopping" in target["url"] + target["locator"] for target in _targets(task)):
        return
    variants = {
        "right": texts,
        "upper": [text.upper() for text in texts],
        "wrong": ["nothing of this"] * len(texts),
        "first": [texts[0], *["?"] * (len(texts) - 1)],
    }
    for made in variants.values():
        pages = _pages(task, last, made)
        if pages is None:
            return
        yield _case(task, "", last, pages)
    yield _case(task, "", "__MAP__/elsewhere", _pages(task, last, texts) or {})
    yield _case(task, "", last, {})


def _targets(task: Json) -> list[Json]:
    targets: list[Json] = task["eval"]["program_html"]
    return targets


def _right_text(target: Json) -> str:
    required = target["required_contents"]
    if "exact_match" in required:
        return str(required["exact_match"])
    return " & ".join(wanted.split(" |OR| ")[-1] for wanted in required["must_include"])


def _last_url(evaluation: Json) -> str:
    wanted = str(evaluation["reference_url"] or "__MAP__/last").split(" |OR| ")[-1]
    posts = any("reddit_get_post_url" in target["url"] for target in evaluation["program_html"])
    return f"{wanted}/123/a-title" if posts and wanted.count("/") < 5 else wanted


def _pages(task: Json, last: str, texts: list[str]) -> dict[str, str] | None:
    """Return the pages on which the task's targets find these texts."""
    pages = dict[str, str]()
    for target, text in zip(_targets(task), texts, strict=True):
        url = str(target["url"])
        if "reddit_get_post_url" in url:
            steps = last.split("/")
            url = "/".join([*steps[:4], ""]) if len(steps) > 3 else last
        made = element_with(target["locator"], text)
        if made is None:
            return None
        url = last if url == "last" else url
        pages[url] = pages.get(url, "") + made
    return pages


def score_all(tasks: list[Json], cases: list[Json], browser: str) -> None:
    """Put the original's score into every case."""
    # Only in the original's environment.
    from playwright.sync_api import sync_playwright
    from webarena.evaluation_harness import (  # type: ignore[import-not-found]
        evaluators,
        helper_functions,
    )

    evaluators.llm_fuzzy_match = evaluators.llm_ua_match = _has_reference
    evaluators.time.sleep = _go_on  # the pages are there at once
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    rules = f"MAP *.test 127.0.0.1:{server.server_port}, MAP * ~NOTFOUND"
    by_number = {task["task_id"]: task for task in tasks}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        chromium = playwright.chromium.launch(
            executable_path=browser, args=["--no-sandbox", f"--host-resolver-rules={rules}"]
        )
        page = chromium.new_context().new_page()
        config = Path(folder) / "task.json"
        for case in cases:
            task = by_number[case["task"]]
            config.write_text(with_addresses(json.dumps({**task, "eval": kept(task)["eval"]})))
            serve(case["pages"])
            last = with_addresses(case["last"])
            if kind_of(task) == "html":
                page.goto(last)
            comb = evaluators.evaluator_router(config)
            at = page if kind_of(task) == "html" else helper_functions.PseudoPage(page, last)
            answer = {"answer": with_addresses(case["answer"])}
            case["score"] = comb([{}, answer], config, at, None)


def _has_reference(pred: str, reference: str, question: str) -> float:
    return float(reference.lower() in pred.lower())


def _go_on(seconds: float) -> None:
    pass


def serve(pages: dict[str, str]) -> None:
    """Let exactly these pages exist; the fixture's test serves them in the same way."""
    _PAGES.clear()
    for url, body in pages.items():
        host, _, path = with_addresses(url).removeprefix("http://").partition("/")
        _PAGES[host, "/" + path.rstrip("/")] = (
            f"<!doctype html><title>A page</title>{with_addresses(body)}"
        )


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        key = (self.headers["Host"].partition(":")[0], "/" + self.path.strip("/"))
        self.send_response(200 if key in _PAGES else 404)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(_PAGES.get(key, "<p>There is no such page.").encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    main()
