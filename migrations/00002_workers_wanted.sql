-- +goose Up

-- outbox_workers_wanted says how many workers the waiting events are worth, when one worker is worth `target` of them: the sum over partitions of
-- waiting / target, at most 1 each, rounded up. One partition never occupies more than one worker, so more than its share of 1 cannot help. Never
-- more than `most`, if it is given: then no more is counted than that takes.
--
-- Waiting are events that are neither processed nor dead letters nor parked. Those of a lane that does not flow (its stream is down) do not count,
-- but while there are any, one worker is wanted to try again. What the last owner of a partition said of its lanes holds until the new one has had
-- time to find out.
--
-- It reads at most `target` waiting rows of each partition, from the saved cursors on by outbox_events_lane, so processed events cost nothing. The
-- settings make that the only plan, whatever the statistics say.
-- +goose StatementBegin
CREATE FUNCTION outbox_workers_wanted(target bigint DEFAULT 10000, most int DEFAULT NULL) RETURNS int LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path FROM CURRENT
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET enable_material = off SET enable_memoize = off SET max_parallel_workers_per_gather = 0 SET jit = off
    SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    streams text[];
    p       record;
    lag     record;
    moving  numeric := 0; -- events that count
    waiting boolean := false;
BEGIN
    IF target IS NULL OR target < 1 THEN
        RAISE EXCEPTION 'outbox_workers_wanted: the target is %, and must be at least 1', coalesce(target::text, 'NULL')
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    WITH RECURSIVE s(stream) AS (
        (SELECT e.stream FROM outbox_events e ORDER BY e.stream LIMIT 1)
        UNION ALL
        SELECT n.stream FROM s CROSS JOIN LATERAL (
            SELECT e.stream FROM outbox_events e WHERE e.stream > s.stream ORDER BY e.stream LIMIT 1) n
    ) SELECT coalesce(array_agg(s.stream), '{}') INTO streams FROM s;
    IF streams = '{}' THEN
        RETURN 0;
    END IF;
    FOR p IN
        SELECT o.partition, o.owner, o.claimed_at, coalesce(o.claimed_at > now() - interval '30 seconds', false) AS fresh,
            c.sequence_file = pg_relation_filenode('outbox_events_seq') AS same, least(most, c.partitions) AS most
        FROM outlane_config c CROSS JOIN outlane_partitions o
    LOOP
        SELECT count(*) AS waiting, count(*) FILTER (WHERE NOT w.still) AS moving INTO lag FROM (
            SELECT l.still FROM unnest(streams) s(stream)
            CROSS JOIN LATERAL (SELECT (SELECT p.fresh OR t.member = p.owner AND t.saved_at >= p.claimed_at FROM outlane_lane_states t
                WHERE t.stream = s.stream AND t.partition = p.partition) IS TRUE AS still OFFSET 0) l
            CROSS JOIN LATERAL (SELECT coalesce((SELECT c.cursor FROM outlane_lanes c
                WHERE c.stream = s.stream AND c.partition = p.partition AND p.same), 0) AS seq OFFSET 0) c
            CROSS JOIN LATERAL (SELECT FROM outbox_events e
                WHERE e.stream = ANY (ARRAY[s.stream]) AND e.partition = p.partition AND e.seq > c.seq AND NOT e.processed AND (e.error IS NULL OR (
                    (SELECT d.resolution IS DISTINCT FROM 'retried' FROM outbox_dead_letters d WHERE d.event_id = e.id) IS NOT TRUE
                    AND (SELECT k.released_at IS NULL FROM outbox_parked_events k WHERE k.event_id = e.id) IS NOT TRUE))
                ORDER BY e.stream, e.seq LIMIT CASE WHEN l.still THEN 1 ELSE target END) e
            LIMIT target + cardinality(streams)) w;
        waiting := waiting OR lag.waiting > 0;
        moving := moving + least(lag.moving, target);
        EXIT WHEN moving > target::numeric * (p.most - 1);
    END LOOP;
    RETURN greatest(ceil(moving / target), waiting::int);
END
$$;
-- +goose StatementEnd
REVOKE EXECUTE ON FUNCTION outbox_workers_wanted(bigint, int) FROM PUBLIC;

-- +goose Down
DROP FUNCTION outbox_workers_wanted(bigint, int);
