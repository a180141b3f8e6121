"""What people see and say: escaped, in their language, and with every picture that is kept."""

import io
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from starlette.requests import Request

from groupwise.feedback import Shown, name_person
from groupwise.serving.review.choices import list_choices
from groupwise.serving.review.languages import choose_language
from groupwise.serving.review.pages import render
from groupwise.serving.review.visitors import make_visitor
from groupwise.serving.review.waiting import Turn

PLACE = re.compile(r"\{[^}]*\}")
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onfocus='alert(1)' autofocus='",
    "</bdi></button><svg onload=alert(1)>",
    "{{ 7 * 7 }}{% raw %}",
    "javascript:alert(1)",
    "&lt;b&gt;&#x3c;",
    "\u202egnp.exe\u202c \u200f\u2067\x00\x1b[2J",
)


class Tags(HTMLParser):
    """Counts tags, and collects attributes and what is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.shown = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.shown += data


def render_one(text, labels=("yes", "no"), language="en"):
    row = {"task": text, f"{text}!": [text, {"deep": text}]}
    shown = Shown("a", 0.0, row, "", (), text, 0.5, text)
    turn = Turn(shown, (), 1, 2, 61.0, can_undo=True)
    reply = render(
        "page",
        language,
        turn=turn,
        choices=list_choices(labels),
        visitor=make_visitor(text, 1.0),
        form_token="f",
        notice=text,
    )
    return reply.body.decode()


@given(st.sampled_from(HOSTILE) | st.text(min_size=1, max_size=500), st.booleans())
def test_whatever_a_text_says_the_page_has_the_same_tags(text, is_open):
    labels = () if is_open else (f"{text}1", f"{text}2")
    plain = Tags(render_one("x", () if is_open else ("x1", "x2")))
    found = Tags(render_one(text, labels))
    assert found.tags == plain.tags
    assert [name for name, _ in found.attributes] == [name for name, _ in plain.attributes]


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("en", "1 done, 2 waiting · about 2 min at your pace"),
        ("zh", "已完成 1 个，等待 2 个 · 按您的速度约需 2 分钟"),
    ],
)
def test_progress_is_told_in_whole_minutes(language, said):
    assert said in Tags(render_one("x", language=language)).shown


def test_nothing_is_scripted_or_styled_in_the_page():
    found = Tags(render_one("x"))
    names = {name for name, _ in found.attributes}
    assert not [name for name in names if name.startswith(("on", "hx-on")) or name == "style"]
    assert "style" not in found.tags
    sources = [value for name, value in found.attributes if name in ("src", "href", "action")]
    assert not [value for value in sources if value and ("//" in value or value.startswith("/"))]


def test_what_turns_a_text_around_or_commands_a_terminal_is_seen():
    shown = Tags(render_one(HOSTILE[-1])).shown
    assert "\ufffdgnp.exe\ufffd" in shown
    assert "␀␛[2J" in shown
    assert not set("\u202e\u202c\u2067\x00\x1b") & set(shown)


def test_a_label_that_hides_something_is_said_as_it_is(enter, remember, store):
    labels = ("ja\u202e", "<nein>")
    remember("a")
    ann = enter(labels=labels)
    assert "&lt;nein&gt;" in ann.page
    assert "ja\ufffd" in ann.page
    assert ann.say(labels[0]).status_code == 200
    assert store.list_items()[0].label == labels[0]


def test_a_row_of_a_hundred_kilobytes_is_shown(enter, remember):
    text = "<b>长&" * 25_000
    remember("a", row={"task": text, "page": "", "none": None, "n": 1.5, "lone": "\ud800"})
    ann = enter()
    assert text in Tags(ann.page).shown
    assert 'class="long" tabindex="0"' in ann.page


@pytest.mark.parametrize(
    ("labels", "keys"),
    [
        (("a",), "1"),
        (("a", "b"), "fj"),
        (("a", "b", "c"), "123"),
        (tuple("abcdefghijkl"), "123456789"),
        ((), ""),
    ],
)
def test_labels_have_keys(labels, keys):
    choices = list_choices(labels)
    assert [choice.label for choice in choices] == list(labels)
    assert "".join(choice.key for choice in choices) == keys


def test_people_say_what_is_right_and_take_it_back(enter, remember, store, predictor):
    for number in range(2):
        remember(f"{number}", 0.5 + number / 10)
    ann = enter()
    assert ann.answer == "0"
    assert "You said: 不通过." in ann.say("不通过").text
    [item] = store.list_items()
    assert (item.label, item.labels[0].person) == (
        "不通过",
        name_person("ann", b"a secret of the tests"),
    )
    assert (ann.answer, "1 done, 1 waiting" in ann.page) == ("1", True)
    assert "Your last word is taken back." in ann.post("undo").text
    assert (ann.answer, store.list_items()) == ("0", [])
    assert "There is nothing to take back." in ann.post("undo").text
    assert "Skipped" in ann.post("skip", answer="0").text
    assert ann.answer == "1"
    assert "not kept any more" in ann.say("通过", answer="other").text
    counted = ann.client.get("/metrics").text
    assert 'groupwise_feedback_total{word="new"} 2.0' in counted


def test_the_page_works_without_scripts(enter, remember, store):
    remember("a")
    ann = enter()
    fields = {"form": ann.page.split('name="form" value="')[1][:64], "answer": "a", "label": "通过"}
    origin = {"Origin": str(ann.client.base_url).rstrip("/")}
    reply = ann.client.post("/review/say", data=fields, headers=origin)
    assert (reply.status_code, reply.headers["location"]) == (303, "./")
    assert store.list_items()[0].label == "通过"
    assert "Nothing waits for you." in ann.look()


def test_two_people_are_asked_about_different_answers(enter, remember):
    for name in "ab":
        remember(name)
    ann, bob, eve = (enter(name) for name in ("ann", "bob", "eve"))
    assert (ann.answer, bob.answer, eve.answer) == ("a", "b", None)
    assert ann.look()
    assert ann.answer == "a"


def test_open_answers_are_confirmed_as_they_are_or_written_anew(enter, remember, store):
    for number, text in enumerate(("eins\r\nzwei", "drei")):
        remember(f"{number}", 0.5 + number / 10, prediction=text)
    ann = enter(labels=())
    assert ann.post("say", answer="0", is_right="yes").status_code == 200
    assert ann.say("vier\r\nfünf").status_code == 200
    assert [item.label for item in store.list_items()] == ["eins\r\nzwei", "vier\nfünf"]
    remember("none", prediction=None)
    assert 'name="is_right"' not in ann.look()
    assert ann.post("say", answer="none", is_right="yes").status_code == 422
    assert ann.say("x" * 1001).status_code == 422


def test_a_store_that_cannot_be_written_is_told(enter, remember, store, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def fail(*given):
        raise OperationalError("INSERT", {}, Exception("database or disk is full"))

    remember("a")
    ann = enter()
    monkeypatch.setattr(store, "say", fail)
    refused = ann.say("通过")
    assert (refused.status_code, "cannot be written" in refused.text) == (503, True)


def test_pictures_of_kept_answers_are_sent_as_policies_see_them(enter, remember, store, draw):
    moving = io.BytesIO()
    frames = [Image.new("RGB", (9, 9), colour) for colour in ("red", "green")]
    frames[0].save(moving, "GIF", save_all=True, append_images=frames[1:])
    contents = [draw(), draw(form="TIFF"), moving.getvalue(), b"<html><script>alert(1)</script>"]
    kept = remember("a", contents=contents)
    stray = store.pictures.keep(draw("blue"))
    ann = enter()
    jpeg, *others, broken = [ann.client.get(f"/review/pictures/{one}") for one in kept.pictures]
    assert (jpeg.content, jpeg.headers["content-type"]) == (contents[0], "image/jpeg")
    assert [one.headers["content-type"] for one in others] == ["image/png"] * 2
    shown = Image.open(io.BytesIO(others[1].content))
    assert (getattr(shown, "n_frames", 1), shown.getpixel((0, 0))) == (1, (255, 0, 0))
    assert (broken.status_code, broken.text) == (404, "There is no such picture.")
    for name in (stray, "%2e%2e", "%2e%2e%2ffeedback.db", "feedback.db", "%25"):
        assert ann.client.get(f"/review/pictures/{name}").status_code == 404


def test_pictures_that_were_deleted_say_so(enter, remember, store, draw):
    kept = remember("a", contents=[draw("red"), draw("green")])
    store.pictures.delete(kept.pictures[1])
    ann = enter(**{"Accept-Language": "zh"})
    assert ann.page.count("这张图片已被删除。") == 1
    assert ann.page.count("<img") == 1
    assert ann.client.get(f"/review/pictures/{kept.pictures[1]}").status_code == 404


@pytest.mark.parametrize(
    ("header", "language"),
    [
        ("", "en"),
        ("zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        ("en-GB,en;q=0.9,zh;q=0.8", "en"),
        ("fr, zh-TW;q=0.4, en;q=0.3", "zh"),
        ("zh;q=0, en;q=0.1", "en"),
        ("de", "en"),
        ("zh;q=viel, en", "en"),
    ],
)
def test_the_browser_says_which_language(header, language):
    assert choose_language(make_request(header)) == language


@given(st.text(st.characters(max_codepoint=255)))
def test_any_header_has_a_language(header):
    assert choose_language(make_request(header)) in ("en", "zh")


def make_request(header: str) -> Request:
    headers = [(b"accept-language", header.encode("latin-1"))]
    return Request({"type": "http", "headers": headers, "query_string": b"", "path": "/"})


def test_a_link_chooses_the_language_for_good(enter, remember):
    remember("a")
    ann = enter()
    assert "What is the right answer?" in ann.page
    assert "正确答案是什么？" in ann.client.get("/review/?language=zh").text
    assert "正确答案是什么？" in ann.look()
    assert "您说的是：通过。" in ann.say("通过").text
    assert "表单属于另一次会话" in ann.post("undo", form="").text
    assert "Nothing waits" in ann.client.get("/review/?language=en").text
    assert "Nothing waits" in ann.client.get("/review/?language=<script>").text
