"""Counts what a sender's messages show, whatever their verdicts: clocks, message IDs, addresses."""

from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programme gives it

from jobs.transforms.expressions import key_at, row_key, signed, timestamp, unsigned
from schemas.replay import Reason
from schemas.wire import UNLIMITED
from udfs.replay.words import NS

_HALF = 1 << 31  # of the 32 bits of a MessageID
_LIMITS = ("time_to_reach_queue", "time_to_be_received")


def sending_seconds(messages: DataFrame) -> DataFrame:
    """Returns a row per sender and second of SentTime, as `sent_s`, from which the rules tell if there is anything.

    `least` and `most` MessageID, `age_s` of the youngest message on arrival, and `over_s`: by how much the age of a
    message exceeds its limit at most.
    """
    ordinal, captured_s = F.col("message_id_ordinal"), F.expr(f"captured_ns div {NS}")
    over = (F.max(F.when(F.col(name) != UNLIMITED, captured_s - F.col(name))) for name in _LIMITS)
    return (
        messages.groupBy("source_queue_manager", F.unix_seconds("sent_at").alias("sent_s"))
        .agg(
            F.min(ordinal).alias("least"),
            F.max(ordinal).alias("most"),
            F.min(captured_s).alias("age_s"),
            F.greatest(*over).alias("over_s"),
        )
        .withColumns({name: F.col(name) - F.col("sent_s") for name in ("age_s", "over_s")})
    )


def outlived_messages(messages: DataFrame, seconds: DataFrame) -> DataFrame:
    """Returns the messages that outlived TimeToReachQueue or TimeToBeReceived; `seconds` are `sending_seconds`.

    The age of a message is by two clocks; the least age of a sender's messages, which is their difference at most, is
    subtracted.
    """
    least = (
        seconds.groupBy("source_queue_manager")
        .agg(F.min("age_s").alias("least_s"), F.max("over_s").alias("over_s"))
        .where("over_s > least_s")
        .drop("over_s")
    )
    age = F.expr(f"captured_ns div {NS}") - F.unix_seconds("sent_at")
    return (
        messages.join(F.broadcast(least), "source_queue_manager")
        .withColumn("age_s", age - F.col("least_s"))
        .where(reduce(Column.__or__, (_outlived(name) for name in _LIMITS)))
        .select(
            *("message_id", "stream_id", "destination_queue", "captured_ns", "captured_at", "age_s", *_LIMITS),
            row_key().alias("key"),
        )
    )


def expired_on_arrival(late: DataFrame, ends: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Returns rows of ExpiredOnArrival: the `outlived_messages` that were not accepted."""
    accepted = verdicts.where("accepted").join(late.select("message_id").distinct(), "message_id", "left_semi")
    first = F.struct(F.col("captured_at").alias("found_at"), "key", "age_s", *_LIMITS)
    return (
        late.join(accepted.select("message_id").distinct(), "message_id", "left_anti")
        .join(ends, "stream_id")
        .groupBy("session_id", "destination_queue")
        .agg(F.count(F.lit(1)).alias("messages"), F.min_by(first, F.struct("captured_ns", "key")).alias("first"))
        .select("*", "first.*")
    )


def _outlived(limit: str) -> Column:
    return F.coalesce((F.col(limit) != UNLIMITED) & (F.col("age_s") > F.col(limit)), F.lit(False))


def fallen_ordinals(seconds: DataFrame) -> DataFrame:
    """Returns the `sending_seconds` of which a MessageID is below one before them; a wrap does not count."""
    in_time = Window.partitionBy("source_queue_manager").orderBy("sent_s")
    return (
        seconds.where("sent_s is not null")
        .select(
            "*", F.lag("most").over(in_time).alias("most_before"), F.lag("sent_s").over(in_time).alias("sent_s_before")
        )
        .where((F.col("most_before") > F.col("least")) & (F.col("most_before") - F.col("least") < _HALF))
    )


def ordinal_regressed(messages: DataFrame, fallen: DataFrame, ends: DataFrame, sequences: DataFrame) -> DataFrame:
    """Returns rows of OrdinalRegressed: of senders whose MessageID falls while SentTime rises.

    Both are given when a message is sent, so resends and the order of commits have no influence. Scope and sequence are
    those of the first message after the fall, if it is transactional. `fallen` are those of `fallen_ordinals`.
    """
    high = F.struct(F.lit(0).alias("side"), F.col("sent_s_before").alias("sent_s"), F.col("most_before").alias("n"))
    low = F.struct(F.lit(1).alias("side"), F.col("sent_s"), F.col("least").alias("n"))
    sides = fallen.select(
        "source_queue_manager", F.col("sent_s").alias("fallen_s"), F.explode(F.array(high, low)).alias("p")
    ).select("source_queue_manager", "fallen_s", "p.*")
    same = (
        (F.col("m.source_queue_manager") == F.col("p.source_queue_manager"))
        & (F.unix_seconds("m.sent_at") == F.col("p.sent_s"))
        & (F.col("m.message_id_ordinal") == F.col("p.n"))
    )
    row = F.struct("captured_at", "session_id", "destination_queue", "key", "tx_sequence_id")
    pairs = (
        messages.alias("m")
        .join(F.broadcast(sides).alias("p"), same)
        .select(
            *("p.*", "m.stream_id", "m.captured_at", "m.captured_ns", "m.destination_queue", "m.tx_sequence_id"),
            row_key().alias("key"),
        )
        .join(ends.select("stream_id", "session_id"), "stream_id")
        .groupBy("source_queue_manager", "fallen_s", "side", "n")
        .agg(F.min_by(row, F.struct("captured_ns", "key")).alias("row"))
        .groupBy("source_queue_manager", "fallen_s")
        .agg(*(F.max(F.when(F.col("side") == i, F.struct("n", "row"))).alias(f"side_{i}") for i in (0, 1)))
        .groupBy("source_queue_manager")
        .agg(F.count(F.lit(1)).alias("messages"), F.min(F.struct("fallen_s", "side_0", "side_1")).alias("first"))
    )
    before, after = F.col("first.side_0"), F.col("first.side_1")
    fits = reduce(
        Column.__or__,
        (
            F.coalesce(F.contains("scope_key", after["row"][name]), F.lit(False))
            for name in ("session_id", "destination_queue")
        ),
    )
    scopes = sequences.select(
        F.col("source_queue_manager").alias("source"), F.col("tx_sequence_id").alias("sequence"), "scope_key"
    )
    same_sequence = (F.col("source_queue_manager") == F.col("source")) & (
        F.col("sequence") == after["row"]["tx_sequence_id"]
    )
    placed = (
        pairs.join(scopes, same_sequence, "left")
        .groupBy("source_queue_manager", "messages", "first")
        .agg(F.max_by("scope_key", F.struct(fits, "scope_key")).alias("scope_key"))
    )
    return placed.select(
        "source_queue_manager",
        "messages",
        before["n"].alias("ordinal_before"),
        before["row"]["key"].alias("key_before"),
        after["n"].alias("ordinal_after"),
        after["row"]["key"].alias("key_after"),
        after["row"]["captured_at"].alias("found_at"),
        *(after["row"][name].alias(name) for name in ("session_id", "destination_queue")),
        F.when(F.col("scope_key").isNotNull(), after["row"]["tx_sequence_id"]).alias("tx_sequence_id"),
        "scope_key",
    )


def two_addresses(ends: DataFrame, verdicts: DataFrame) -> DataFrame:
    """Returns rows of TwoAddresses, of queue managers by their GUID.

    A host may have several networks. Two machines with one identity send different messages under one number, or one
    machine's messages are refused because the other's sequence is greater.
    """
    seen = (
        ends.where(F.col("sender_guid").isNotNull())
        .groupBy("sender_guid", "address")
        .agg(
            F.min("first_ns").alias("first_ns"),
            F.min_by(F.struct("session_id", "stream_id"), F.struct("first_ns", "stream_id")).alias("first"),
        )
        .groupBy("sender_guid")
        .agg(F.sort_array(F.collect_list(F.struct("first_ns", "address", "first"))).alias("places"))
        .where(F.size("places") > 1)
    )
    places = F.col("places")
    return seen.join(_conflicts(ends, verdicts, seen), "sender_guid", "left").select(
        "sender_guid",
        F.col("places.address").alias("addresses"),
        F.transform(places, lambda place: key_at(place["first"]["stream_id"], F.lit(0))).alias("beginnings"),
        timestamp(places[1]["first_ns"]).alias("found_at"),
        F.size(places).alias("messages"),
        places[1]["first"]["session_id"].alias("session_id"),
        F.col("conflict.keys").alias("conflict"),
        F.col("conflict.scope_key").alias("scope_key"),
        unsigned(F.col("conflict.sequence")).alias("tx_sequence_id"),
    )


def _conflicts(ends: DataFrame, verdicts: DataFrame, several: DataFrame) -> DataFrame:
    """Returns `sender_guid` and `conflict`: the `keys` of two messages that cannot be of one machine, and their place.

    The place is `scope_key` and `sequence` (`signed`) of the message that suffers.
    """
    streams = ends.join(several.select("sender_guid"), "sender_guid", "left_semi")
    sent = verdicts.join(F.broadcast(streams.select("stream_id", "sender_guid", "address")), "stream_id").select(
        *("sender_guid", "address", "scope_key", "tx_sequence_number", "accepted", "reason", "content_hash"),
        signed(F.col("tx_sequence_id")).alias("sequence"),
        row_key().alias("key"),
    )

    def conflict(*keys: str) -> Column:
        return F.struct(F.array(*keys).alias("keys"), "scope_key", "sequence").alias("conflict")

    one_number = (
        sent.groupBy("sender_guid", "scope_key", "sequence", "tx_sequence_number")
        .agg(
            F.min(F.struct("address", "content_hash", "key")).alias("one"),
            F.max(F.struct("address", "content_hash", "key")).alias("other"),
        )
        .where("one.address < other.address AND one.content_hash <> other.content_hash")
        .select("sender_guid", conflict("one.key", "other.key"))
    )
    accepted = sent.where("accepted").groupBy("sender_guid", "scope_key", "address")
    of_scope = Window.partitionBy("sender_guid", "scope_key").orderBy(F.desc("highest"))
    highest = (
        accepted.agg(F.max(F.struct("sequence", "key")).alias("highest"))
        .withColumn("place", F.row_number().over(of_scope))
        .where("place <= 2")  # of two addresses one is another than that of a message, whichever this is
        .drop("place")
    )
    stale = sent.where(F.col("reason") == Reason.STALE_SEQUENCE.value)
    two_states = (
        stale.join(highest.withColumnRenamed("address", "elsewhere"), ["sender_guid", "scope_key"])
        .where("elsewhere <> address AND highest.sequence > sequence")
        .select("sender_guid", conflict("highest.key", "key"))
    )
    return one_number.unionByName(two_states).groupBy("sender_guid").agg(F.min("conflict").alias("conflict"))
