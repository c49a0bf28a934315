"""Says why a message was not received, as the class of a negative acknowledgment tells, and what to do about it."""

from collections.abc import Mapping

from schemas.wire import MessageClass

TIME_OUTS = (
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT,
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER,
)
"""The classes that say that a time ran out, which is reckoned from the sender's clock."""
_READ = "Look whether an application reads the queue, or allow more time."
_SIGNED = "Compare certificates and cryptographic providers of sender and receiver."
_CAUSES: Mapping[int, tuple[str, str]] = {
    MessageClass.MQMSG_CLASS_NACK_BAD_DST_Q: (
        "the queue does not exist",
        "Create the queue, or correct its name at the sender.",
    ),
    MessageClass.MQMSG_CLASS_NACK_DELETED: ("it was deleted on its way", "Ask who deleted it from its outgoing queue."),
    MessageClass.MQMSG_CLASS_NACK_REACH_QUEUE_TIMEOUT: (
        "the time to reach the queue ran out",
        "Compare the clocks of sender and receiver, look for what held it up, or allow more time.",
    ),
    MessageClass.MQMSG_CLASS_NACK_Q_EXCEED_QUOTA: (
        "the queue is full",
        "Look whether an application reads the queue, or raise the quota of the queue or the machine.",
    ),
    MessageClass.MQMSG_CLASS_NACK_ACCESS_DENIED: (
        "the sender has no access to the queue",
        "Grant the account of the sending application the right to send to the queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_HOP_COUNT_EXCEEDED: ("it passed too many queue managers", "Check the routing links."),
    MessageClass.MQMSG_CLASS_NACK_BAD_SIGNATURE: ("its signature is not valid", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_BAD_ENCRYPTION: ("it could not be decrypted", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_COULD_NOT_ENCRYPT: ("it could not be encrypted", _SIGNED),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_Q: (
        "it is transactional and the queue is not",
        "Send it outside a transaction, or to a transactional queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_NOT_TRANSACTIONAL_MSG: (
        "the queue is transactional and it is not",
        "Send it in a transaction, or to another queue.",
    ),
    MessageClass.MQMSG_CLASS_NACK_UNSUPPORTED_CRYPTO_PROVIDER: (
        "the receiver lacks its cryptographic provider",
        _SIGNED,
    ),
    MessageClass.MQMSG_CLASS_NACK_SOURCE_COMPUTER_GUID_CHANGED: (
        "the GUID of its source changed",
        "Ask whether Message Queuing was installed again on the sender.",
    ),
    MessageClass.MQMSG_CLASS_NACK_Q_DELETED: ("the queue was deleted", "Ask who deleted the queue."),
    MessageClass.MQMSG_CLASS_NACK_Q_PURGED: ("the queue was purged", "Ask who purged the queue."),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT: ("the time to be received ran out", _READ),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_TIMEOUT_AT_SENDER: (
        "the time to be received ran out at the sender",
        _READ,
    ),
    MessageClass.MQMSG_CLASS_NACK_RECEIVE_REJECTED: (
        "an application rejected it",
        "Look for the cause in the log of the application.",
    ),
}
"""Why a message was not received, [MC-MQAC] 2.2.2.9, and what to do about it."""


def reason_of(message_class: int) -> str:
    """Returns why a message was not received."""
    return _CAUSES.get(message_class, ("for a reason that the documents do not name", ""))[0]


def advice_on(message_class: int) -> str:
    """Returns what to do about it."""
    return _CAUSES.get(message_class, ("", "Look for the class in [MC-MQAC] 2.2.2.9."))[1]
