"""Derives transactions from the messages between FM and LM ([MS-MQMQ] 2.2.20.5)."""
