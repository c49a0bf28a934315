"""What a finding of each kind says, and the rows that it names as proof, by the name of the scene.

What the other scenes say is compared with the second computation (tests/test_all_findings.py).
"""

from scene import NAME, guid

from schemas.replay import FindingKind as K

SENTENCES = {
    "resent_although_accepted": (
        K.DUPLICATES,
        (
            f"1 repeat of sequence {NAME} arrived after the receiver had the message, and it refused it, as it should. "
            "The first repeats number 1."
        ),
        ["resent_although_accepted.0>@0", "resent_although_accepted.0>@10"],
    ),
    "resent_too_soon": (
        K.RESEND_SCHEDULE,
        (
            f"No OrderAck came in time for sequence {NAME}, so the sender sent number 1 again on the same connection, "
            "after 30.0, 12.0 s: not the default intervals of [MS-MQQB] 3.1.3.1 (30, 300, 1800 and 21600 s); registry "
            "settings set them."
        ),
        ["resent_too_soon.0>@0", "resent_too_soon.0>@10"],
    ),
    "one_number_for_two_messages": (
        K.DUPLICATES_DIFFER,
        (
            f"1 message of sequence {NAME} reused a number under which the receiver accepted a different message "
            "(another message ID). Two senders share one identity, or a sender was restored from a backup. The first "
            "is number 1."
        ),
        ["one_number_for_two_messages.0>@0", "one_number_for_two_messages.0>@10"],
    ),
    "refused_before_missing_bytes_that_may_hold_its_resend": (
        K.OUT_OF_ORDER,
        (
            f"1 message of sequence {NAME} arrived out of order and was refused; it has an unknown outcome. The first "
            "is number 3, which needs number 2; the receiver stood at: number 1."
        ),
        [f"refused_before_missing_bytes_that_may_hold_its_resend.0>@{offset}" for offset in (0, 10)],
    ),
    "one_expired_and_was_bridged": (
        K.GAP_EXPIRED,
        (
            f"1 message of sequence {NAME} was accepted although the sender skipped numbers, which it does when "
            "messages expire. Before the first, number 3, number 2 expired."
        ),
        ["one_expired_and_was_bridged.0>@0", "one_expired_and_was_bridged.0>@10"],
    ),
    "resent_and_refused_for_ever": (
        K.STUCK_SEQUENCE,
        (
            f"The sender resends and the receiver refuses: 2 resends of sequence {NAME} were refused again, and the "
            "receiver still waits for a message before them. The first is number 3, which needs number 2; the receiver "
            "stood at: number 1."
        ),
        [f"resent_and_refused_for_ever.0>@{offset}" for offset in (0, 10, 20)],
    ),
    "resent_and_passed_by_at_last": (
        K.OUT_OF_ORDER,
        (
            f"1 message of sequence {NAME} arrived out of order and was refused; it was never accepted and is lost. "
            "The first is number 3, which needs number 2; the receiver stood at: number 1."
        ),
        ["resent_and_passed_by_at_last.0>@0", "resent_and_passed_by_at_last.0>@10"],
    ),
    "bytes_missing": (
        K.CAPTURE_GAP,
        (
            f"1 message of sequence {NAME} cannot be judged: bytes are missing from the captures before it, and the "
            "numbers skipped may have been in these bytes. The first is number 5, which needs number 4; before the "
            "missing bytes the receiver stood at: number 1."
        ),
        ["bytes_missing.0>@0", "bytes_missing.0>@20"],
    ),
    "bytes_missing_that_the_receiver_had": (
        K.MISSED_BY_CAPTURE,
        (
            f"Bytes are missing from the captures before 1 message of sequence {NAME}, but the receiver acknowledged "
            "it: it had what the captures miss. The first is number 5; before the missing bytes the receiver stood at: "
            "number 1."
        ),
        ["bytes_missing_that_the_receiver_had.0>@0", "bytes_missing_that_the_receiver_had.0>@20"],
    ),
    "the_state_fell": (
        K.STATE_FELL,
        (
            f"The receiver's state fell: it answered 1 repeat of sequence {NAME} with an OrderAck for the repeated, "
            "lower number. It follows the letter of [MS-MQQB] 3.1.5.8.6 and may accept messages twice. The first is "
            "number 1; the receiver stood at: number 2."
        ),
        ["the_state_fell.0>@10", "the_state_fell.0>@20"],
    ),
    "refused_for_cause": (
        K.REFUSED_FOR_CAUSE,
        (
            f"The receiver refused 1 message of sequence {NAME}, as a FinalAck says: the sender has no access to the "
            "queue (NACK_ACCESS_DENIED). The first is number 1. Grant its account the right to send to the queue."
        ),
        ["refused_for_cause.0>@0"],
    ),
    "purged_from_its_queue": (
        K.NOT_RECEIVED_BY_APPLICATION,
        (
            f"1 message of sequence {NAME} reached the queue and left it unread, as a FinalAck says: the queue was "
            "purged (NACK_Q_PURGED). The first is number 1. Ask who purged the queue."
        ),
        ["purged_from_its_queue.0>@0"],
    ),
    "new_messages_under_an_old_sequence": (
        K.SEQUENCE_REGRESSED,
        (
            f"1 new message of sequence {NAME} lies below what the receiver had accepted: the sender was restored from "
            "a backup, or another machine uses its identity. The first is number 7; the receiver stood at: number 1 of "
            "sequence 2038-01-19T03:14:08Z#4."
        ),
        ["new_messages_under_an_old_sequence.0>@0", "new_messages_under_an_old_sequence.0>@10"],
    ),
    "message_ids_fall": (
        K.ORDINAL_REGRESSED,
        (
            f"The message IDs of sender {guid('message_ids_fall.a')} fell 1 time while its clock went on, the first "
            "time from 11 to 5: the sender was restored from a backup, another machine uses its identity, or its clock "
            "was set back."
        ),
        ["message_ids_fall.0>@10", "message_ids_fall.0>@20"],
    ),
    "never_acknowledged": (
        K.UNACKNOWLEDGED,
        (
            f"1 message of sequence {NAME} was accepted, but the captures hold no OrderAck for it, although they show "
            "the session for more than the 10500 ms that the timers allow. The first is number 2."
        ),
        ["never_acknowledged.0>@10"],
    ),
    "acknowledged_late": (
        K.SLOW_ACKNOWLEDGMENT,
        (
            f"1 message of sequence {NAME} was acknowledged after more than the 10500 ms that the timers allow. The "
            "first is number 1: after 10600 ms."
        ),
        ["acknowledged_late.0>@0"],
    ),
    "the_same_answer_again_and_again": (
        K.REPEATED_ORDER_ACK,
        (
            f"The receiver sent the OrderAck for number 1 of sequence {NAME} 3 times in 61 s, and none for a higher "
            "number: in this time it refused 1 higher number."
        ),
        [f"the_same_answer_again_and_again.0<@{at * 1000}" for at in (1, 62)],
    ),
    "too_late_to_be_received": (
        K.EXPIRED_ON_ARRIVAL,
        (
            "1 message arrived after it had expired, so the receiver drops it. The first was at least 61 s old, and "
            "its TimeToBeReceived (60 s) had run out."
        ),
        ["too_late_to_be_received.0>@10"],
    ),
    "one_number_from_two_addresses": (
        K.TWO_ADDRESSES,
        (
            f"Queue manager {guid('one_number_from_two_addresses.a')} has 2 addresses "
            "(ip.one_number_from_two_addresses.a, ip.other), and what they send conflicts: two machines use one "
            "identity."
        ),
        ["one_number_from_two_addresses.0>@0", "one_number_from_two_addresses.1>@0"],
    ),
    "no_session_ack_any_more": (
        K.WINDOW_STALLED,
        (
            "The receiver stopped taking packets on 1 connection: for up to 92 s no SessionAck came for packets that "
            "were sent. It did not go on, so messages wait in the sender's outgoing queue. Look on the receiver for a "
            "full disk, a lack of memory, and a Message Queuing service that is paused or hangs."
        ),
        ["no_session_ack_any_more.0>@10"],
    ),
    "one_sequence_goes_to_two_receivers": (
        K.SEVERAL_RECEIVERS,
        (
            "2 queue managers take messages at the address ip.one_sequence_goes_to_two_receivers.b "
            f"({guid('one_sequence_goes_to_two_receivers.b')}, {guid('one_sequence_goes_to_two_receivers.c')}): a load "
            "balancer or a cluster is in front of them, or Message Queuing was installed again. 1 sequence of messages "
            "went to several of them. Let a sender reach the same one each time: transactional messages need one "
            "receiver."
        ),
        [f"one_sequence_goes_to_two_receivers.{number}>@0" for number in (0, 1)],
    ),
    "the_answers_go_to_another_address": (
        K.ACKNOWLEDGED_ELSEWHERE,
        (
            "1 acknowledgment went to ip.behind, although the messages of sender "
            f"{guid('the_answers_go_to_another_address.a')} come from ip.the_answers_go_to_another_address.a: it has "
            "several networks, or its address is translated on the way. Look whether it arrives there: a sender "
            "repeats what is not acknowledged."
        ),
        ["the_answers_go_to_another_address.1>@0"],
    ),
    "no_last_message": (
        K.TORN_TRANSACTION,
        (
            f"1 transaction that begins in sequence {NAME} is torn: the number next to it was seen, and no message is "
            "marked as the first or as the last. The first has the ID 7 and 1 message."
        ),
        ["no_last_message.0>@0", "no_last_message.0>@10"],
    ),
    "one_transaction_within_another": (
        K.INTERLEAVED_TRANSACTION,
        (
            f"1 transaction that begins in sequence {NAME} is interleaved: messages of another transaction have "
            "numbers between its own. The first has the ID 7 and 2 messages."
        ),
        [f"one_transaction_within_another.0>@{offset}" for offset in (0, 20, 10)],
    ),
    "one_message_of_a_transaction_is_lost": (
        K.TRANSACTION_PARTLY_DELIVERED,
        (
            f"1 transaction that begins in sequence {NAME} is delivered only in part. The first has the ID 7 and 3 "
            "messages, of which 1 is lost."
        ),
        [f"one_message_of_a_transaction_is_lost.0>@{offset}" for offset in (0, 20)],
    ),
}
