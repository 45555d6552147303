"""Where a service keeps its bandits: a folder with a ledger each, or schemas of PostgreSQL."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..ledger.backup import NAME as LEDGER
from ..ledger.postgres import WAITING, readable
from ..ledger.sqlite import public

NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
SCHEME = re.compile(r"[a-z]{2,}:(//|[^/\\]*@)|postgres(ql)?:")  # and no C:\ of Windows
DEFAULT = "default"
SCHEMA = "bandit_"


def by_name(name: str) -> tuple[bool, str]:
    """The order in which bandits are listed."""
    return name != DEFAULT, name


@dataclass(frozen=True)
class Storage:
    """A folder, or None and the URL of PostgreSQL."""

    folder: Path | None
    url: str = ""

    @classmethod
    def of(cls, given: "str | os.PathLike[str]") -> "Storage":
        text = os.fspath(given)
        if not text:
            raise ValueError("expected a folder or a URL postgresql://..., got nothing")
        if text.startswith(("postgresql://", "postgres://")):
            if "#" in text:
                raise ValueError(
                    "the URL of a service names no bandit: leave out what follows #, or write %23 "
                    "where it is part of a password"
                )
            return cls(None, readable(text))
        if SCHEME.match(text):
            scheme = text.split(":")[0] + ":" + "//" * ("://" in text)
            raise ValueError(f"expected a folder or a URL postgresql://..., got {scheme}...")
        return cls(Path(text))

    @property
    def alone(self) -> bool:
        """Whether the folder is itself the ledger of the one bandit served."""
        return self.folder is not None and (self.folder / LEDGER).exists()

    def ledger(self, name: str) -> Path | str:
        """The address of a bandit's ledger."""
        if not NAME.fullmatch(name):
            raise ValueError(
                "a bandit's name has up to 40 lower-case letters, digits, - and _, and begins "
                f"with a letter or digit; got {name!r}"
            )
        if self.folder is None:
            return f"{self.url}#{name}"
        if not self.alone:
            return self.folder / name
        if name != DEFAULT:
            raise ValueError(f"here is one bandit, served as {DEFAULT!r}; got {name!r}")
        return self.folder

    def exists(self, name: str) -> bool:
        """Whether there is such a bandit."""
        self.check()
        if self.folder is None or not NAME.fullmatch(name):
            return name in self.names()
        return name in self.names() if self.alone else (self.folder / name / LEDGER).exists()

    def check(self) -> None:
        """Raise OSError if the folder is not there; a database does so when it is used."""
        if self.folder is not None and not self.folder.is_dir():
            raise OSError(f"the folder {self.folder} is not there")

    def names(self) -> list[str]:
        """The bandits there are; `default` comes first where there is one."""
        if self.folder is None:
            found = self._schemas()
        elif self.alone:
            found = [DEFAULT]
        elif self.folder.is_dir():
            found = [each.parent.name for each in self.folder.glob(f"*/{LEDGER}")]
        else:
            found = []
        return sorted((n for n in found if NAME.fullmatch(n)), key=by_name)

    def connect(self) -> Any:
        """A connection to PostgreSQL, with limits on how long to wait."""
        import psycopg
        from psycopg.conninfo import conninfo_to_dict

        settings: dict[str, Any] = WAITING | conninfo_to_dict(self.url)
        return psycopg.connect(**settings, autocommit=True)

    def _schemas(self) -> list[str]:
        import psycopg

        query = "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)"
        try:
            with self.connect() as connection:
                rows = connection.execute(query, (SCHEMA,)).fetchall()
        except psycopg.Error as error:
            raise OSError(f"the database does not answer: {error}") from error
        return [name.removeprefix(SCHEMA) for (name,) in rows]

    def __str__(self) -> str:
        """Without the password that a URL may have."""
        if self.folder is not None:
            return str(self.folder)
        return public(self.url).partition("#")[0]
