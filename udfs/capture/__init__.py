"""Opens capture files and reads their records: pcap and pcapng, plain or compressed, from any offset.

What a record holds is for `udfs.network`; nothing here knows IP, TCP or MSMQ.
"""
