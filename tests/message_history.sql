WITH arrivals AS (
    SELECT *,
        row_number() OVER (
            PARTITION BY scope_key, tx_sequence_id, tx_sequence_number, source_queue_manager, message_id, content_hash
            ORDER BY replay_order
        ) AS nth,
        sum(CASE WHEN accepted THEN 1 ELSE 0 END) OVER (
            PARTITION BY scope_key, tx_sequence_id, tx_sequence_number, source_queue_manager, message_id, content_hash
            ORDER BY replay_order
        ) AS acceptances
    FROM verdicts
),
sides AS (
    SELECT stream_id, coalesce(copy_of, stream_id) AS counting FROM streams
),
seen AS (
    SELECT v.scope_key, v.tx_sequence_id, v.tx_sequence_number, v.source_queue_manager, v.message_id, v.content_hash,
        max(v.tx_sequence) AS tx_sequence,
        max(v.message_key) AS message_key,
        max(v.label) AS label,
        max(v.body_size) AS body_size,
        max(v.sent_at) AS sent_at,
        array_agg(v.verdict ORDER BY v.replay_order) AS verdicts,
        count(*) AS arrivals,
        count(CASE WHEN v.accepted = false THEN 1 END) AS refusals,
        min(v.captured_at) AS first_seen_at,
        max(v.captured_at) AS last_seen_at,
        max(CASE WHEN v.nth = 1 THEN v.session_id END) AS session_id,
        max(CASE WHEN v.nth = 1 THEN v.destination_queue END) AS destination_queue,
        max(CASE WHEN v.nth = 1 THEN s.src_ip END) AS first_src_ip,
        max(CASE WHEN v.nth = 1 THEN c.uri END) AS first_uri,
        max(CASE WHEN v.nth = 1 THEN v.first_frame END) AS first_frame_number,
        max(CASE WHEN v.nth = 1 THEN v.stream_id END) AS first_stream_id,
        max(CASE WHEN v.nth = 1 THEN v.stream_offset END) AS first_stream_offset,
        max(CASE WHEN v.accepted AND v.acceptances = 1 THEN v.captured_at END) AS accepted_at,
        max(CASE WHEN v.accepted AND v.acceptances = 1 THEN c.uri END) AS accepted_uri,
        max(CASE WHEN v.accepted AND v.acceptances = 1 THEN v.first_frame END) AS accepted_frame_number,
        coalesce(
            max(CASE WHEN v.accepted AND v.acceptances = 1 THEN v.acknowledged_at END),
            min(CASE WHEN v.accepted IS NULL THEN v.acknowledged_at END)
        ) AS acknowledged_at,
        min(v.acknowledged_at) AS arrival_acknowledged_at,
        coalesce(
            max(CASE WHEN v.accepted AND v.acceptances = 1 THEN v.ack_latency_ms END),
            max(CASE WHEN v.accepted IS NULL THEN v.ack_latency_ms END)
        ) AS ack_latency_ms
    FROM arrivals AS v
    JOIN captures AS c ON c.capture_id = v.capture_id
    JOIN sides AS d ON d.stream_id = v.stream_id
    JOIN streams AS s ON s.stream_id = d.counting
    GROUP BY v.scope_key, v.tx_sequence_id, v.tx_sequence_number, v.source_queue_manager, v.message_id, v.content_hash
),
reading AS (
    SELECT count(delivered) AS told FROM sequences
)
SELECT coalesce(m.session_id, o.session_id) AS session_id,
    coalesce(m.source_queue_manager, o.source_queue_manager) AS source_queue_manager,
    coalesce(m.destination_queue, o.destination_queue) AS destination_queue,
    coalesce(m.tx_sequence, o.tx_sequence) AS tx_sequence,
    coalesce(m.tx_sequence_number, o.tx_sequence_number) AS tx_sequence_number,
    coalesce(o.numbers, 1) AS numbers,
    m.message_id, m.message_key, m.label, m.body_size, m.sent_at,
    CASE WHEN r.told > 0 THEN coalesce(o.outcome, 'delivered') END AS outcome,
    CASE WHEN o.outcome IS NOT NULL THEN o.lost WHEN r.told > 0 THEN false END AS lost,
    CASE WHEN r.told > 0 THEN coalesce(o.stuck, false) END AS stuck,
    o.explanation,
    m.verdicts,
    coalesce(m.arrivals, 0) AS arrivals,
    coalesce(m.refusals, 0) AS refusals,
    m.first_seen_at, m.last_seen_at, m.accepted_at,
    CASE WHEN coalesce(o.outcome, 'delivered') IN ('delivered', 'delivered_after_refusal', 'delivered_twice', 'not_read',
            'delivered_by_acknowledgment', 'delivered_before_capture')
        THEN coalesce(m.acknowledged_at, m.arrival_acknowledged_at) ELSE m.acknowledged_at END AS acknowledged_at,
    m.ack_latency_ms, o.delivered_by,
    o.final_ack_class,
    m.first_src_ip, m.first_uri, m.first_frame_number, m.first_stream_id, m.first_stream_offset,
    m.accepted_uri, m.accepted_frame_number,
    coalesce(m.scope_key, o.scope_key) AS scope_key,
    coalesce(m.tx_sequence_id, o.tx_sequence_id) AS tx_sequence_id,
    m.content_hash
FROM seen AS m
FULL JOIN outcomes AS o ON o.scope_key = m.scope_key AND o.tx_sequence_id = m.tx_sequence_id
    AND o.tx_sequence_number = m.tx_sequence_number AND o.source_queue_manager = m.source_queue_manager
    AND o.message_id = m.message_id AND o.content_hash = m.content_hash
CROSS JOIN reading AS r
