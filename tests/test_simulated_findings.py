"""Situations of connections in simulated nights: the truth, a second computation, and the product on Spark."""

import json
from collections import defaultdict
from pathlib import Path

import plain_findings
from pyspark.sql import SparkSession
from warehouses import config, rows

from jobs.simulator import CAPTURE_PREFIX, simulate
from jobs.steps import nightly
from schemas.replay import FindingKind as K

_KINDS = {K.CANNOT_CONNECT, K.WINDOW_STALLED, K.SEVERAL_RECEIVERS, K.NOT_RECEIVED_BY_APPLICATION}


def test_a_second_computation_agrees_with_the_truth() -> None:
    told, differences = plain_findings.compare(range(6))
    assert not differences
    assert told > 12


def test_the_product_agrees_with_the_truth(spark: SparkSession, tmp_path: Path) -> None:
    simulate(str(tmp_path), 7, 500, situations=True)
    scopes = json.loads((tmp_path / "truth.json").read_text())
    truth: dict[str, set[K]] = {
        scope["source_queue_manager"]: set(map(K, scope["findings"])) for scope in scopes if scope.get("findings")
    }
    unknown = {scope["source_queue_manager"] for scope in scopes if "findings" not in scope}
    nightly.run(spark, config(tmp_path / "warehouse", tmp_path / f"{CAPTURE_PREFIX}_*.pcap"))
    at = {row["address"]: row["sender_guid"] for row in rows(tmp_path / "warehouse", "ends")}
    found = defaultdict(set)
    for row in rows(tmp_path / "warehouse", "findings"):
        if K(row["kind"]) in {*_KINDS, K.ACKNOWLEDGED_ELSEWHERE} and row["scope_key"] is None:
            sender = row["session_id"].split("->")[0]
            found[at.get(sender, sender)].add(K(row["kind"]))
    (one,) = [source for source, kinds in found.items() if K.SEVERAL_RECEIVERS in kinds]  # the second one there
    assert K.SEVERAL_RECEIVERS in truth[one]
    for kinds in (*found.values(), *truth.values()):
        kinds.discard(K.SEVERAL_RECEIVERS)
    assert {source: kinds for source, kinds in found.items() if kinds and source not in unknown} == {
        source: kinds for source, kinds in truth.items() if kinds
    }
    assert set.union(*truth.values()) | {K.SEVERAL_RECEIVERS} == _KINDS
