"""Served answers and what people said of them, in SQLite or PostgreSQL.

A label is on disk before ``say`` returns, and saying it again changes nothing.
"""

import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config as AlembicConfig
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    String,
    cast,
    create_engine,
    delete,
    event,
    func,
    select,
)
from sqlalchemy.engine import Row, make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, NoSuchModuleError, SQLAlchemyError

from groupwise.core import DataError
from groupwise.feedback.items import FeedbackItem, GivenLabel, Shown
from groupwise.feedback.pictures import PictureFolder
from groupwise.feedback.tables import ANSWERS, USES, WORDS

_MIGRATIONS = Path(__file__).parent / "migrations"


@dataclass(frozen=True, slots=True)
class Withdrawal:
    """What went when a person's data were deleted.

    Attributes:
        num_labels: words of this person that are gone.
        versions: that were trained on them, by name: they can't be replayed any more.
    """

    num_labels: int
    versions: tuple[str, ...]


class FeedbackStore:
    """A store; any number of threads and processes may use one database at once.

    Args:
        folder: of the pictures and, without a URL, of the SQLite file ``feedback.db``; it is made.
        url: of a database as SQLAlchemy writes it, such as ``postgresql+psycopg://HOST/NAME``.
        max_items: answers that are kept; the oldest go first, those that nobody spoke of before
            all others. Also when the store is opened.
        clock: seconds since the epoch.

    Raises:
        DataError: if the database cannot be opened, or is of a newer Groupwise.
    """

    def __init__(
        self,
        folder: Path,
        url: str | None = None,
        *,
        max_items: int = 10_000,
        clock: Callable[[], float] = time.time,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.pictures = PictureFolder(folder / "pictures")
        self._max_items = max_items
        self._clock = clock
        self._engine = _open(url or _make_file(folder / "feedback.db"))
        with self._write() as connection:
            self._trim(connection)

    def close(self) -> None:
        """Let go of the database."""
        self._engine.dispose()

    def remember(self, shown: Shown, contents: Iterable[bytes] = ()) -> Shown:
        """Keep an answer, so that people can speak of it, and return it with its pictures' names.

        Args:
            shown: the answer.
            contents: of its pictures, in order.

        Raises:
            DataError: if there is an answer with this id.
        """
        with self._write() as connection:
            names = [self.pictures.keep(content) for content in contents]
            kept = replace(shown, pictures=tuple(names))
            try:
                connection.execute(ANSWERS.insert(), asdict(kept))
            except IntegrityError as error:
                raise DataError(f"there is an answer {shown.id!r} already") from error
            self._trim(connection)
        return kept

    def say(self, answer: str, person: str, label: str | None) -> bool:
        """Record what a person says of an answer; None takes back what they said.

        Returns:
            False if it is what they said last, and nothing was written.

        Raises:
            DataError: if there is no such answer (any more).
        """
        with self._engine.begin() as connection:
            _lock(connection, answer)
            last = connection.execute(
                select(WORDS.c.label)
                .where(WORDS.c.answer == answer, WORDS.c.person == person)
                .order_by(WORDS.c.number.desc())
                .limit(1)
            ).first()
            if (None if last is None else last.label) == label:
                return False
            word = {"answer": answer, "person": person, "label": label, "at_s": self._clock()}
            connection.execute(WORDS.insert(), word)
        return True

    def read(self, answer: str) -> FeedbackItem | None:
        """Return what people say of an answer; None if nobody says anything.

        Raises:
            DataError: if there is no such answer.
        """
        with self._read() as connection:
            found = connection.execute(select(ANSWERS).where(ANSWERS.c.id == answer)).first()
            if found is None:
                raise DataError(f"there is no answer {answer!r}")
            items = _read_items(connection, [found])
        return items[0] if items else None

    def list_items(self) -> list[FeedbackItem]:
        """Return all answers that people speak of, the oldest answer first."""
        with self._read() as connection:
            found = connection.execute(select(ANSWERS).order_by(ANSWERS.c.at_s, ANSWERS.c.id))
            return _read_items(connection, list(found))

    def list_unlabelled(self) -> list[Shown]:
        """Return all answers that nobody speaks of, the oldest first."""
        spoken = {item.shown.id for item in self.list_items()}
        with self._read() as connection:
            found = connection.execute(select(ANSWERS).order_by(ANSWERS.c.at_s, ANSWERS.c.id))
            return [_read_shown(row, row.row) for row in found if row.id not in spoken]

    def list_briefly(self) -> tuple[list[Shown], list[Shown]]:
        """Return answers that nobody speaks of, and the others, oldest first, without their rows.

        Rows may be long; here they are empty.
        """
        last = select(func.max(WORDS.c.number)).group_by(WORDS.c.answer, WORDS.c.person)
        spoken = select(WORDS.c.answer).where(WORDS.c.number.in_(last), WORDS.c.label.is_not(None))
        columns = [column for column in ANSWERS.c if column.name != "row"]
        query = select(*columns, ANSWERS.c.id.in_(spoken).label("is_spoken_of"))
        found: tuple[list[Shown], list[Shown]] = ([], [])
        with self._read() as connection:
            for row in connection.execute(query.order_by(ANSWERS.c.at_s, ANSWERS.c.id)):
                found[bool(row.is_spoken_of)].append(_read_shown(row, {}))
        return found

    def find(self, answer: str) -> Shown | None:
        """Return an answer as it was served; None if it is not kept (any more)."""
        with self._read() as connection:
            found = connection.execute(select(ANSWERS).where(ANSWERS.c.id == answer)).first()
            return None if found is None else _read_shown(found, found.row)

    def is_shown(self, picture: str) -> bool:
        """Return whether an answer that is kept shows a picture of this name."""
        query = select(ANSWERS.c.pictures).where(_shows(picture))
        with self._read() as connection:
            return any(picture in row.pictures for row in connection.execute(query))

    def count_answers(self) -> int:
        """Return how many answers are kept."""
        with self._read() as connection:
            return connection.execute(select(func.count()).select_from(ANSWERS)).scalar_one()

    def note_use(self, items: Iterable[FeedbackItem], version: str) -> None:
        """Record that a version was trained on these items; again changes nothing."""
        wanted = {(item.shown.id, given.person) for item in items for given in item.labels}
        with self._engine.begin() as connection:
            known = select(USES.c.answer, USES.c.person).where(USES.c.version == version)
            new = wanted - {(row.answer, row.person) for row in connection.execute(known)}
            if new:
                rows = [{"answer": a, "person": p, "version": version} for a, p in sorted(new)]
                connection.execute(USES.insert(), rows)

    def delete_person(self, person: str) -> Withdrawal:
        """Delete all that a person said, and tell which versions were trained on it.

        Raises:
            DataError: if it is deleted, but SQLite's log could not be emptied of it.
        """
        with self._engine.begin() as connection:
            used = select(USES.c.version).where(USES.c.person == person).distinct()
            versions = tuple(sorted(connection.execute(used).scalars()))
            gone = connection.execute(delete(WORDS).where(WORDS.c.person == person)).rowcount
        self._empty_log()
        return Withdrawal(gone, versions)

    def delete_pictures(self, before_s: float) -> int:
        """Delete pictures that no answer from this time on shows; return how many."""
        with self._write() as connection:
            return self._delete_unseen(connection, before_s)

    def _read(self) -> Connection:
        return self._engine.connect().execution_options(is_reading=True)

    @contextmanager
    def _write(self) -> Generator[Connection]:
        """Give a transaction that alone changes answers and pictures."""
        with self._engine.begin() as connection:
            if connection.dialect.name == "postgresql":
                connection.exec_driver_sql("LOCK TABLE answers IN EXCLUSIVE MODE")
            yield connection

    def _empty_log(self) -> None:
        """Leave nothing in SQLite's log, which keeps what was deleted as long as a server runs."""
        if self._engine.dialect.name != "sqlite":
            return
        with closing(self._engine.raw_connection()) as connection:
            cursor = connection.cursor()
            cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            told: Any = cursor.fetchone()
        if told[0] != 0:  # busy
            raise DataError(
                "the words are deleted, but the store's log still has them: it is being read",
                fix="run the same command again",
            )

    def _trim(self, connection: Connection) -> None:
        """Delete the oldest answers over the limit, and some more, so that it is seldom done."""
        total = connection.execute(select(func.count()).select_from(ANSWERS)).scalar_one()
        if total <= self._max_items:
            return
        is_spoken_of = ANSWERS.c.id.in_(select(WORDS.c.answer))
        oldest = (
            select(ANSWERS.c.id)
            .order_by(is_spoken_of, ANSWERS.c.at_s, ANSWERS.c.id)
            .limit(total - self._max_items + self._max_items // 100)
        )
        gone = list(connection.execute(oldest).scalars())
        connection.execute(delete(WORDS).where(WORDS.c.answer.in_(gone)))
        connection.execute(delete(ANSWERS).where(ANSWERS.c.id.in_(gone)))
        self._delete_unseen(connection, before_s=float("-inf"))

    def _delete_unseen(self, connection: Connection, before_s: float) -> int:
        query = select(ANSWERS.c.at_s, ANSWERS.c.pictures)
        rows = [row for row in connection.execute(query) if row.at_s >= before_s]
        return self.pictures.delete_others({name for row in rows for name in row.pictures})


def _open(url: str) -> Engine:
    """Return an engine of a database whose tables are those of this version."""
    try:
        parsed = make_url(url)
        engine = create_engine(parsed)
        if engine.dialect.name == "sqlite":
            event.listen(engine, "connect", _set_up_sqlite)
            event.listen(engine, "begin", _begin)
        config = AlembicConfig()
        config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
        with engine.begin() as connection:
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise DataError(f"the feedback store cannot be opened ({error})") from error
    except (SQLAlchemyError, command.util.CommandError, OSError) as error:
        why = str(error).splitlines()[0]
        raise DataError(f"the feedback store {_hide(url)} cannot be opened ({why})") from error
    return engine


def _make_file(path: Path) -> str:
    """Return the URL of an SQLite file that its owner alone may read, and the logs beside it."""
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
    except OSError as error:
        raise DataError(f"the feedback store {path} cannot be opened ({error})") from error
    return f"sqlite:///{path.absolute()}"


def _hide(url: str) -> str:
    """Return the address of a database without its password."""
    return make_url(url).render_as_string(hide_password=True)


def _set_up_sqlite(connection: Any, record: object) -> None:
    """Let readers and one writer work at once; a commit is on disk when it returns.

    What is deleted is overwritten.
    """
    connection.isolation_level = None
    for pragma in (
        "busy_timeout=60000",
        "journal_mode=WAL",
        "synchronous=FULL",
        "foreign_keys=ON",
        "secure_delete=ON",
    ):
        connection.execute(f"PRAGMA {pragma}")


def _begin(connection: Connection) -> None:
    """Take the write lock first: a reader that turns writer would be refused at once."""
    is_reading = connection.get_execution_options().get("is_reading", False)
    connection.exec_driver_sql("BEGIN" if is_reading else "BEGIN IMMEDIATE")


def _lock(connection: Connection, answer: str) -> None:
    """Let nobody else speak of this answer until the transaction ends."""
    query = select(ANSWERS.c.id).where(ANSWERS.c.id == answer).with_for_update()
    if connection.execute(query).first() is None:
        raise DataError(f"there is no answer {answer!r}")


def _read_items(connection: Connection, answers: Sequence[Row[Any]]) -> list[FeedbackItem]:
    """Return those of these answers that people speak of, each with everybody's last word."""
    query = select(WORDS).order_by(WORDS.c.number)
    if len(answers) == 1:
        query = query.where(WORDS.c.answer == answers[0].id)
    last: dict[str, dict[str, Row[Any]]] = {}
    for word in connection.execute(query):
        last.setdefault(word.answer, {})[word.person] = word
    items: list[FeedbackItem] = []
    for answer in answers:
        said = [word for word in last.get(answer.id, {}).values() if word.label is not None]
        labels = tuple(
            GivenLabel(word.person, word.label, word.at_s)
            for word in sorted(said, key=lambda word: word.number)
        )
        if labels:
            items.append(FeedbackItem(_read_shown(answer, answer.row), labels))
    return items


def _shows(picture: str) -> ColumnElement[bool]:
    """Return the condition that the names of an answer's pictures, as JSON, contain one."""
    return cast(ANSWERS.c.pictures, String).contains(picture, autoescape=True)


def _read_shown(row: Row[Any], asked: Mapping[str, Any]) -> Shown:
    return Shown(
        id=row.id,
        at_s=row.at_s,
        row=asked,
        session=row.session,
        pictures=tuple(row.pictures),
        prediction=row.prediction,
        confidence=row.confidence,
        version=row.version,
        decided_by=row.decided_by,
        judge_label=row.judge_label,
        judge_probability=row.judge_probability,
    )
