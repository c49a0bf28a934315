"""Situations of connections in simulated nights: the truth, a second computation, and the product."""

from collections import defaultdict

import plain_findings
from plain_replay import CLOCK_STEP, WHOLE, simulated

from schemas.replay import FindingKind as K

_KINDS = {
    *(K.CANNOT_CONNECT, K.WINDOW_STALLED, K.SEVERAL_RECEIVERS, K.NOT_RECEIVED_BY_APPLICATION),
    *(K.ACKNOWLEDGED_ELSEWHERE, K.TWO_ADDRESSES),
}


def test_a_second_computation_agrees_with_the_truth() -> None:
    told, differences = plain_findings.compare(range(6))
    assert not differences
    assert told > 12


def test_the_product_agrees_with_the_truth() -> None:
    night, scopes = simulated(0, **WHOLE | CLOCK_STEP, messages=500, situations=True)
    truth: dict[str, set[K]] = {
        scope["source_queue_manager"]: set(map(K, scope["findings"])) for scope in scopes if scope.get("findings")
    }
    sources = {scope["source_queue_manager"] for scope in scopes}
    unknown = {scope["source_queue_manager"] for scope in scopes if "findings" not in scope}
    replayed = night.replayed()
    at = {row["address"]: row["sender_guid"] for row in replayed.inputs.every_end.to_dicts()}
    found: dict[str, set[K]] = defaultdict(set)
    for row in replayed.explained.findings.to_dicts():
        kind, sender = K(row["kind"]), str(row["session_id"]).split("->")[0]
        if kind is K.TWO_ADDRESSES and sender in sources:
            found[sender].add(kind)
        elif kind in _KINDS - {K.TWO_ADDRESSES} and row["scope_key"] is None:
            found[at.get(sender, sender)].add(kind)
    (balanced,) = [scope for scope in scopes if "delivered" in scope]
    of_addresses = {source for source, kinds in found.items() if K.SEVERAL_RECEIVERS in kinds}  # the second one there
    assert len(of_addresses - {balanced["source_queue_manager"]}) == 1
    assert balanced["source_queue_manager"] in of_addresses
    assert all(K.SEVERAL_RECEIVERS in truth[source] for source in of_addresses)
    delivered = {(id_, number) for id_, number, _ in balanced["delivered"]}
    for row in replayed.explained.outcomes.to_dicts():
        if row["lost"] and row["source_queue_manager"] == balanced["source_queue_manager"]:
            assert (str(row["tx_sequence_id"]), row["tx_sequence_number"]) not in delivered
    for kinds in (*found.values(), *truth.values()):
        kinds.discard(K.SEVERAL_RECEIVERS)
    assert {source: kinds for source, kinds in found.items() if kinds and source not in unknown} == {
        source: kinds for source, kinds in truth.items() if kinds
    }
    assert set.union(*truth.values()) == _KINDS - {K.SEVERAL_RECEIVERS}
