"""Which language a browser is answered in, and its words."""

from functools import cache
from pathlib import Path

from starlette.requests import Request

from groupwise.evaluation.predictions import Language
from groupwise.evaluation.report.phrases import LANGUAGES, Phrases

LANGUAGE = "groupwise_language"
"""Name of the cookie, and without its beginning of the query's field."""
_FIELD = LANGUAGE.rpartition("_")[2]
_PHRASES = Path(__file__).with_name("phrases.yaml")


def choose_language(http: Request) -> Language:
    """Return what was chosen by a link now or before, else the first that the browser prefers."""
    for chosen in (find_chosen(http), http.cookies.get(LANGUAGE)):
        for language in LANGUAGES:
            if chosen == language:
                return language
    wanted = _list_preferred(http.headers.get("accept-language", ""))
    for name in wanted:
        for language in LANGUAGES:
            if name.startswith(language):
                return language
    return "en"


def find_chosen(http: Request) -> Language | None:
    """Return the language of a link to the page in another language; None without one."""
    given = http.query_params.get(_FIELD)
    return next((language for language in LANGUAGES if language == given), None)


@cache
def load_words(language: Language) -> Phrases:
    """Return the words of the page."""
    return Phrases(language, own=_PHRASES)


def _list_preferred(header: str) -> list[str]:
    """Return the languages of an Accept-Language, the most wanted first; odd weights are last."""
    weighed: list[tuple[float, str]] = []
    for part in header.split(","):
        name, _, weight = part.partition(";")
        try:
            share = float(weight.strip().removeprefix("q=") or 1)
        except ValueError:
            share = 0.0
        weighed.append((share, name.strip().lower()))
    return [name for share, name in sorted(weighed, key=lambda one: -one[0]) if share > 0]
