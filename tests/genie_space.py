"""Writes conf/databricks/genie.yml, a Genie space that knows the questions of docs/questions.md: `make docs`."""

import re
from pathlib import Path
from typing import Any

import yaml

from schemas.history import MESSAGE_HISTORY
from schemas.tables import TABLES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "questions.md"
TARGET = ROOT / "conf" / "databricks" / "genie.yml"
SCHEMA = "${var.catalog}.${resources.schemas.msmq.name}"
QUESTIONS = re.findall(
    r"^## (\d+)\. (.+?)\n\n(?:[^`]+\n\n)?```sql\n(.+?)```",
    PAGE.read_text(),
    re.MULTILINE | re.DOTALL,
)
"""Number, question and SQL of each."""
_TOLD = (MESSAGE_HISTORY, *TABLES)
_TABLE = re.compile(rf"\b(FROM|JOIN) ({'|'.join(table.name for table in _TOLD)})\b")
_INSTRUCTIONS = """\
A message is what an application sent; an arrival is one transmission of it. Count messages with message_history,
outcomes, sequences and sessions, and arrivals with verdicts.
message_history has a row for every transactional message, with what became of it, its arrivals and their frames.
outcomes has no row for a message that was plainly delivered. One of its rows can stand for several numbers: sum the
column numbers.
lost is true for a message that is lost for good, false where that is not decided yet (pending, awaited), and null where
the captures cannot tell. stuck: it was resent and refused again.
incidents is the shortest answer to what happened; findings with the same incident_id are its evidence.
witness is an array of the frames that prove a row, with role, uri and frame_number. All times are UTC.
"""
_HEAD = "# Made by `make docs` from docs/questions.md. Do not edit.\n"


def space() -> dict[str, Any]:
    """Returns the definition: IDs are 32 hexadecimal digits, and every list is in the order of its IDs or names."""
    tables = {name for *_, statement in QUESTIONS for _, name in _TABLE.findall(statement)}
    return {
        "version": 2,
        "config": {
            "sample_questions": [{"id": _id(int(number)), "question": [question]} for number, question, _ in QUESTIONS]
        },
        "data_sources": {
            "tables": [
                {"identifier": f"{SCHEMA}.{table.name}", "description": [table.comment]}
                for table in sorted(_TOLD, key=lambda table: table.name)
                if table.name in tables
            ]
        },
        "instructions": {
            "text_instructions": [{"id": _id(0x100), "content": [_INSTRUCTIONS]}],
            "example_question_sqls": [
                {
                    "id": _id(0x200 + int(number)),
                    "question": [question],
                    "sql": [_TABLE.sub(rf"\1 {SCHEMA}.\2", statement)],
                }
                for number, question, statement in QUESTIONS
            ],
        },
    }


def _id(number: int) -> str:
    """Returns 32 hexadecimal digits that no reader of YAML takes for a number."""
    return f"a{number:031x}"


class _Dumper(yaml.SafeDumper):  # type: ignore[misc]  # it has no types
    """Writes texts of several lines as blocks."""


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _represent_text)


def text() -> str:
    """Returns the resource as YAML."""
    resource = {
        "title": "MSMQ messages",
        "description": "What became of MSMQ messages, and why, in plain language",
        "warehouse_id": "${var.sql_warehouse}",
        "permissions": [{"group_name": "users", "level": "CAN_RUN"}],
        "serialized_space": space(),
    }
    declared = {"resources": {"genie_spaces": {"msmq": resource}}}
    return f"{_HEAD}{yaml.dump(declared, Dumper=_Dumper, sort_keys=False, width=1000)}"


if __name__ == "__main__":
    TARGET.write_text(text())
