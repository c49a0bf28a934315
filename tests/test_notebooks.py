"""Each notebook from top to bottom, on weeks of simulated nights."""

import re
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import duckdb
import matplotlib as mpl
import numpy as np
import pytest
from deltalake import DeltaTable
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pyspark.sql import DataFrame, SparkSession
from warehouses import in_duckdb
from weeks import write_nights

from jobs.tables.chosen import ask, chosen_warehouse
from schemas.replay import Verdict

mpl.use("agg")  # draws without a screen
NOTEBOOKS = Path(__file__).parents[1] / "notebooks"
_CELL = re.compile(r"^# COMMAND -+$", re.MULTILINE)
NAMED = ["the name", "the name"]
"""Of a sender and of a queue."""
_MAGIC = re.compile(r"^# MAGIC %(\w+)", re.MULTILINE)


@pytest.fixture(scope="module")
def weeks(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seventeen nights: three weeks, as a week begins on Monday."""
    assert spark  # the notebooks take the active session
    warehouse = tmp_path_factory.mktemp("weeks")
    write_nights(warehouse, 17)
    rows = DeltaTable(str(warehouse / "outcomes")).to_pyarrow_table().to_pylist()
    originals = {row[name] for row in rows for name in ("source_queue_manager", "destination_queue")}
    (warehouse / "names.csv").write_text("\n".join(["original,name", *(f"{one},the name" for one in originals)]))
    return warehouse


@pytest.fixture(scope="module")
def trends(weeks: Path) -> "Shown":
    """What the notebook `fleet_trends` shows of the seventeen nights."""
    return shown_by("fleet_trends", weeks, names_file=f"{weeks}/names.csv")


def cells(notebook: str) -> list[str]:
    """The cells that hold code; the others are Markdown, for which nothing has to be run."""
    header, *parts = _CELL.split((NOTEBOOKS / f"{notebook}.py").read_text())
    assert header.startswith("# Databricks notebook source\n# MAGIC %md\n# MAGIC # ")
    assert set(_MAGIC.findall("".join([header, *parts]))) == {"md"}
    return [part for part in parts if not _MAGIC.search(part)]


class Shown(list[list[dict[str, Any]]]):
    """Holds the rows of each table that a notebook displayed, and beside them its `figures`."""

    def __init__(self) -> None:
        super().__init__()
        self.figures: list[Figure] = []


class Widgets:
    """Those of Databricks, as far as notebooks use them."""

    def __init__(self, **values: str) -> None:
        self.values, self.asked = values, dict[str, str]()

    def text(self, name: str, default: str, label: str) -> None:
        """Makes a widget."""
        assert label
        self.asked[name] = default

    def get(self, name: str) -> str:
        """Returns what a widget holds."""
        return self.values.get(name, self.asked[name])


def shown_by(notebook: str, warehouse: Path, **widgets: str) -> Shown:
    """What each `display` of the notebook shows, run from top to bottom in one namespace with these widgets."""
    shown = Shown()

    def display(what: DataFrame | Figure) -> None:
        if isinstance(what, Figure):
            assert_drawn(what)
            shown.figures.append(what)
        else:
            shown.append([row.asDict() for row in what.limit(1_000).collect()])

    chosen = Widgets(warehouse=str(warehouse), **widgets)
    names: dict[str, Any] = {"display": display, "dbutils": SimpleNamespace(widgets=chosen)}
    for cell in cells(notebook):
        exec(compile(cell, notebook, "exec"), names)  # noqa: S102 - the product's own cells
    assert {"catalog", "schema", "warehouse", "names_file"} <= set(chosen.asked)
    return shown


def assert_drawn(figure: Figure) -> None:
    """Draws a picture: each part has a name of what it counts, and more in it than its frame."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    for part in figure.axes:
        assert part.get_ylabel()
        assert part.patches or part.lines
        left, low, right, high = part.get_window_extent().extents.astype(int)
        pixels = np.flipud(np.asarray(canvas.buffer_rgba()))[low + 3 : high - 3, left + 3 : right - 3, :3]
        assert len(np.unique(pixels.reshape(-1, 3), axis=0)) > 3


def bars(part: Axes) -> dict[str, list[float]]:
    """The heights of the bars of a part, by their label."""
    return {str(one.get_label()): [bar.get_height() for bar in one.patches] for one in part.containers}


def of_messages(warehouse: Path, unit: str, where: str = "true") -> list[dict[str, Any]]:
    """What became of the messages of each hour or day, of `message_history` in DuckDB."""
    statement = f"""
        SELECT date_trunc('{unit}', first_seen_at) AS began,
            sum(CASE WHEN outcome LIKE 'delivered%' OR outcome = 'not_read' THEN 1 ELSE 0 END) AS delivered,
            sum(CASE WHEN outcome IN ('displaced', 'given_up', 'passed_by', 'refused_for_cause') THEN 1 ELSE 0 END)
                AS lost,
            sum(CASE WHEN outcome = 'pending' THEN 1 ELSE 0 END) AS pending,
            sum(CASE WHEN outcome IN ('unknown', 'contradicted', 'unacknowledged') THEN 1 ELSE 0 END) AS in_doubt,
            quantile_cont(ack_latency_ms, 0.5) AS median_ms, quantile_cont(ack_latency_ms, 0.95) AS p95_ms,
            count(*) AS messages
        FROM message_history WHERE arrivals > 0 AND {where} GROUP BY began ORDER BY began
    """  # noqa: S608 - the test's own
    rows: list[dict[str, Any]] = in_duckdb(warehouse).sql(statement).to_arrow_table().to_pylist()
    assert all(row["messages"] == sum(row[fate] for fate in ("delivered", *HARM)) for row in rows)
    return rows


HARM = ("lost", "pending", "in_doubt")


def assert_shows(good: Axes, bad: Axes, expected: list[dict[str, Any]]) -> None:
    """Two parts show what was delivered and what was not; the bars of the other fates stand on each other."""
    assert bars(good) == {"delivered": [row["delivered"] for row in expected]}
    assert bars(bad) == {fate.replace("_", " "): [row[fate] for row in expected] for fate in HARM}
    below = [bar.get_y() for bar in bad.containers[2].patches]
    assert below == [row["lost"] + row["pending"] for row in expected]


def as_told(found: duckdb.DuckDBPyRelation) -> list[dict[str, Any]]:
    """Rows of DuckDB, equal to Spark's whose numbers differ in the last digits."""
    rows = found.to_arrow_table().to_pylist()
    return [
        {name: pytest.approx(value) if isinstance(value, float) else value for name, value in row.items()}
        for row in rows
    ]


def test_a_first_look_shows_what_was_lost_captures_and_what_was_refused(
    weeks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = shown_by("first_look", weeks, names_file=f"{weeks}/names.csv")
    lost, incidents, captures, quarantine, unbalanced, verdicts, refused = shown
    assert " messages were lost since " in capsys.readouterr().out
    assert {(row["outcome"], row["sender_name"], row["queue_name"]) for row in lost} == {("displaced", *NAMED)}
    assert [row["outcome"] for row in incidents][:3] == ["lost", "lost", "unknown"]
    assert [row["status"] for row in captures] == ["ok"]
    assert {row["stage"] for row in quarantine} == {"framing"}
    assert unbalanced == []
    assert {row["verdict"] for row in verdicts} >= {"in_order", "out_of_order", "duplicate", "unknown", "gap_expired"}
    assert all(row["first_frame_number"] and {"out_of_order", "duplicate"} & {*row["verdicts"]} for row in refused)
    assert refused
    ((good, bad),) = (figure.axes for figure in shown.figures)
    assert_shows(good, bad, of_messages(weeks, "hour"))
    assert sum(bars(bad)["lost"]) == sum(row["numbers"] for row in lost if row["outcome"] == "displaced") > 0


@pytest.mark.slow
def test_widgets_choose_tables_and_period(spark: SparkSession, weeks: Path) -> None:
    shown = shown_by("first_look", weeks, since="2026-03-17T00:00")
    lost, incidents, *_ = shown
    good, bad = shown.figures[0].axes
    assert_shows(good, bad, of_messages(weeks, "hour", "last_seen_at >= TIMESTAMP '2026-03-17'"))
    assert len(lost) == 21
    assert all(row["last_seen_at"] >= datetime(2026, 3, 17) for row in lost)  # noqa: DTZ001 - Spark's own, in UTC
    assert len(incidents) > 0
    chosen = ask(spark, SimpleNamespace(widgets=Widgets(catalog="main", schema="msmq")))
    assert chosen_warehouse(spark, chosen).root == "main.msmq"  # before a folder
    assert chosen_warehouse(spark, chosen | {"schema": ""}).root == "out/warehouse"
    spark.conf.set("msmq.warehouse", str(weeks))  # where there are no widgets
    assert chosen_warehouse(spark, ask(spark, None)).root == str(weeks)
    spark.conf.unset("msmq.warehouse")


def test_one_session_is_shown_message_by_message(weeks: Path) -> None:
    shown = shown_by("one_session", weeks, names_file=f"{weeks}/names.csv")
    worst, became, incidents, findings, arrivals, latency, streams, holes, quarantine, captures, decoded = shown
    assert all(row["packet"]["decodes"] for row in decoded)
    assert [row["sender_name"] for row in worst] == NAMED[:1]
    assert became[0]["outcome"] == "displaced"
    assert {row["outcome"] for row in incidents} == {"lost"}
    assert {row["queue_name"] for row in (*became, *incidents, *findings) if row["destination_queue"]} == {NAMED[1]}
    assert captures
    assert {f"{row['sender']}->{row['receiver']}" for row in streams} == {worst[0]["session_id"]}
    assert {row["kind"] for row in findings} >= {"two_addresses", "duplicates_differ"}
    assert [row["replay_order"] for row in arrivals] == list(range(1, len(arrivals) + 1))
    per_outcome = in_duckdb(weeks).sql(
        """
        SELECT scope_key, outcome, count(*) AS messages, count(acknowledged_at) AS acknowledged,
            quantile_cont(ack_latency_ms, 0.5) AS median_ms, quantile_cont(ack_latency_ms, 0.95) AS p95_ms
        FROM message_history WHERE session_id = $session AND arrivals > 0
        GROUP BY scope_key, outcome
        """,
        params={"session": worst[0]["session_id"]},
    )
    assert latency == as_told(per_outcome.order("scope_key, outcome"))
    assert sum(row["messages"] for row in latency) < len(arrivals)
    assert holes
    ((numbers, times),) = (figure.axes for figure in shown.figures)
    in_history = in_duckdb(weeks).sql(
        """
        SELECT verdict, count(*) AS arrivals, sum(tx_sequence_number) AS numbers
        FROM (SELECT unnest(verdicts) AS verdict, tx_sequence_number FROM message_history WHERE session_id = $session)
        GROUP BY verdict
        """,
        params={"session": worst[0]["session_id"]},
    )
    drawn = {str(one.get_label()).partition(":")[0]: np.asarray(one.get_ydata()) for one in numbers.lines}
    assert {name: (len(of), of.sum()) for name, of in drawn.items() if len(of)} == {
        verdict: (arrivals, total) for verdict, arrivals, total in in_history.fetchall()
    }
    assert len(times.lines[0].get_xydata()) == sum(row["acknowledged"] for row in latency)
    assert {row["stage"] for row in quarantine} <= {"framing"}


@pytest.mark.slow
def test_one_packet_is_decoded_in_sql(demo: Path) -> None:
    *_, (decoded,) = shown_by("one_session", demo)
    assert decoded["packet"]["decodes"]
    assert decoded["message_properties"]["label"] == "West order 574426"
    assert decoded["transaction_header"]["tx_sequence_number"] == 1


def test_trends_are_shown_by_day_and_week(weeks: Path, trends: "Shown") -> None:
    incidents, days, findings, senders, latency, coverage = trends
    ((good, bad, times),) = (figure.axes for figure in trends.figures)
    each_day = of_messages(weeks, "day")
    assert len(each_day) >= 17
    assert_shows(good, bad, each_day)
    for line, name in zip(times.lines, ("median_ms", "p95_ms"), strict=True):
        assert list(np.asarray(line.get_ydata())) == pytest.approx([row[name] for row in each_day])
    assert len(incidents) == 3
    assert sum(row["lost"] for row in incidents) > 0
    assert len(days) == len(coverage) >= 17
    assert sum(row["arrivals"] for row in days) == sum(row["in_order"] for row in days) + sum(
        row[verdict] for row in days for verdict in set(Verdict) - {Verdict.IN_ORDER}
    )
    assert len({row["week"] for row in findings}) == len(latency) == 3
    assert {row["sender_name"] for row in senders} == {NAMED[0]}
    assert all(0 <= row["before"] < row["last_week"] <= 1 for row in senders)
    assert sum(row["missing_bytes"] for row in coverage) > 0
    by_week = in_duckdb(weeks).sql("""
        SELECT CAST(date_trunc('week', first_seen_at) AS DATE) AS week, count(*) AS messages,
            quantile_cont(ack_latency_ms, 0.5) AS median_ms, quantile_cont(ack_latency_ms, 0.95) AS p95_ms,
            max(ack_latency_ms) AS longest_ms
        FROM message_history WHERE ack_latency_ms IS NOT NULL GROUP BY week ORDER BY week
    """)
    assert latency == as_told(by_week)
    arrivals = in_duckdb(weeks).sql("""
        SELECT CAST(captured_at AS DATE) AS day, count(*) AS arrivals FROM verdicts GROUP BY day ORDER BY day
    """)
    assert [{name: row[name] for name in ("day", "arrivals")} for row in days] == as_told(arrivals)


@pytest.mark.slow
def test_days_are_utc_whatever_zone_the_session_has(spark: SparkSession, weeks: Path, trends: "Shown") -> None:
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Kiritimati")
    try:
        assert shown_by("fleet_trends", weeks, names_file=f"{weeks}/names.csv") == trends
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")
