-- Every name here is unqualified: the migrator sets search_path to the one schema it installs into, then pg_temp, and the functions keep that
-- path. (Unless it is named, pg_temp comes first, and a producer could put a table of its own before ours.)

-- +goose Up

-- outlane_config has one row, written by the first `outlane migrate up`.
CREATE TABLE outlane_config (
    singleton           boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    partitions          int NOT NULL CHECK (partitions BETWEEN 1 AND 4096),
    partition_key_field text NOT NULL,
    -- What cursors and the horizon count by: the sequence's file, which TRUNCATE ... RESTART IDENTITY and a restore change, and how often a
    -- sequence that went backwards has been noticed.
    sequence_file       oid NOT NULL,
    generation          bigint NOT NULL DEFAULT 0,
    -- What is left to do after numbers were given twice; NULL: nothing. 0: lift the sequence past every number that the table has. 1: note the
    -- next transaction. More: that transaction; when all before it have ended, which may hold such numbers, look at everything once more.
    settling            xid8,
    created_at          timestamptz NOT NULL DEFAULT now()
);

-- outlane_idle is the idle mark: 2 while the pool sleeps and wants a NOTIFY, 1 while it polls. It is a sequence because setval() is
-- visible at once to every session and leaves no dead row versions for the trigger to walk over.
CREATE SEQUENCE outlane_idle MINVALUE 1 MAXVALUE 2 START 1;

-- outlane_routes gives a stream to events that were inserted without one. `pattern` is a regular expression made from the topic pattern.
CREATE TABLE outlane_routes (
    position int PRIMARY KEY,
    topic    text NOT NULL,
    pattern  text NOT NULL,
    stream   text NOT NULL
);

CREATE TABLE outbox_events (
    id            text PRIMARY KEY,
    stream        text NOT NULL,
    topic         text NOT NULL,
    payload       jsonb,
    payload_bytes bytea,
    content_type  text,
    headers       jsonb,
    created_at    timestamptz DEFAULT now(),
    processed     boolean NOT NULL DEFAULT false,
    processed_at  timestamptz,
    error         text,
    attempts      int NOT NULL DEFAULT 0,
    seq           bigint NOT NULL,
    partition     int NOT NULL,
    partition_key text NOT NULL,
    -- The inserting transaction, and the oldest transaction open at that moment: if a.xact < b.xact_oldest, then a was committed before b
    -- was inserted. `outlane verify` judges order by it.
    xact          xid8 NOT NULL,
    xact_oldest   xid8 NOT NULL,
    CONSTRAINT outbox_events_one_payload CHECK (payload IS NULL OR payload_bytes IS NULL)
) WITH (
    -- Each row gets one update, its mark; at 50 there is room for it on the row's own page even while a long reader keeps old versions.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05
);

-- Bodies are not compressed: they live for a short time, the producer's transaction need not pay for it, and their size is known unread.
ALTER TABLE outbox_events ALTER COLUMN payload SET STORAGE EXTERNAL, ALTER COLUMN payload_bytes SET STORAGE EXTERNAL,
    ALTER COLUMN headers SET STORAGE EXTERNAL;

-- No index of this table may name a column that a mark writes (processed, processed_at, error, attempts), or marks stop being HOT.
CREATE INDEX outbox_events_lane ON outbox_events (stream, partition, seq);
CREATE INDEX outbox_events_seq_order ON outbox_events (seq);

CREATE SEQUENCE outbox_events_seq OWNED BY outbox_events.seq;

CREATE TABLE outlane_partitions (
    partition  int PRIMARY KEY,
    epoch      bigint NOT NULL DEFAULT 0,
    owner      text,
    claimed_at timestamptz
) WITH (fillfactor = 50);

CREATE TABLE outlane_lanes (
    stream     text NOT NULL,
    partition  int NOT NULL,
    cursor     bigint NOT NULL,
    stream_seq bigint NOT NULL DEFAULT 0,
    saved_at   timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, partition)
) WITH (fillfactor = 50);

-- Why a lane does not flow, as its owner sees it, for people to read. A lane that has no row flows. A row of somebody who is not the owner, or
-- from before the partition's last claim, is stale.
CREATE TABLE outlane_lane_states (
    stream    text NOT NULL,
    partition int NOT NULL,
    member    text NOT NULL,
    reason    text NOT NULL,
    detail    text NOT NULL,
    since     timestamptz NOT NULL,
    saved_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (stream, partition)
) WITH (fillfactor = 50);

-- outlane_horizon has one row: no row with a seq at or under it can still appear. Saved at most once a second by each worker.
CREATE TABLE outlane_horizon (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    seq       bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
INSERT INTO outlane_horizon DEFAULT VALUES;

-- Entries stay after they are resolved: verify needs to know which events a person let through out of order.
CREATE TABLE outbox_dead_letters (
    event_id      text PRIMARY KEY,
    seq           bigint NOT NULL,
    stream        text NOT NULL,
    partition     int NOT NULL,
    partition_key text NOT NULL,
    topic         text NOT NULL,
    reason        text NOT NULL,
    error         text NOT NULL,
    attempts      int NOT NULL,
    blocks        boolean NOT NULL,
    created_at    timestamptz NOT NULL DEFAULT now(),
    resolved_at   timestamptz,
    resolution    text CHECK (resolution IN ('retried', 'skipped'))
);
CREATE INDEX outbox_dead_letters_open ON outbox_dead_letters (stream, partition, seq) WHERE resolved_at IS NULL;

-- A row for each event that waits behind a dead letter of its key.
CREATE TABLE outbox_parked_events (
    event_id      text PRIMARY KEY,
    seq           bigint NOT NULL,
    stream        text NOT NULL,
    partition     int NOT NULL,
    partition_key text NOT NULL,
    parked_at     timestamptz NOT NULL DEFAULT now(),
    released_at   timestamptz
);
CREATE INDEX outbox_parked_events_open ON outbox_parked_events (stream, partition, seq) WHERE released_at IS NULL;

-- The Postgres lease backend: one row a live member, one row a partition.
CREATE TABLE outlane_members (
    id         text PRIMARY KEY,
    duration   interval NOT NULL,
    renewals   bigint NOT NULL DEFAULT 0,
    leaving    boolean NOT NULL DEFAULT false, -- still alive, but to be given nothing more
    joined_at  timestamptz NOT NULL DEFAULT now(),
    renewed_at timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

CREATE TABLE outlane_leases (
    partition   int PRIMARY KEY,
    holder      text NOT NULL DEFAULT '',
    transitions bigint NOT NULL DEFAULT 0,
    acquired_at timestamptz
) WITH (fillfactor = 50);

-- A UUID of version 7 (RFC 9562): 48 bits of Unix milliseconds, then random bits.
-- +goose StatementBegin
CREATE FUNCTION outlane_uuid7() RETURNS text LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT encode(
        set_bit(set_bit(
            overlay(uuid_send(gen_random_uuid())
                    PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                    FROM 1 FOR 6),
            52, 1), 53, 1),
        'hex')::uuid::text
$$;
-- +goose StatementEnd
ALTER TABLE outbox_events ALTER COLUMN id SET DEFAULT outlane_uuid7();

-- The first four bytes of the MD5 of the key's UTF-8 bytes, big-endian, modulo n. The same as partition.Of in Go. It is as stable as
-- convert_to, and no more, so that its body is inlined where it is called.
-- +goose StatementBegin
CREATE FUNCTION outlane_partition_of(key text, n int) RETURNS int LANGUAGE sql STABLE STRICT PARALLEL SAFE AS $$
    SELECT (('x' || left(md5(convert_to(key, 'UTF8')), 8))::bit(32)::bigint % n)::int
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION outbox_partition_of(key text) RETURNS int LANGUAGE sql STABLE STRICT SECURITY DEFINER SET search_path FROM CURRENT AS $$
    SELECT outlane_partition_of(key, partitions) FROM outlane_config
$$;
-- +goose StatementEnd

-- outlane_complete is what the trigger does with rows that leave out, or give, what few do. An explicit NULL counts as left out: object mappers
-- write every column.
-- +goose StatementBegin
CREATE FUNCTION outlane_complete(e outbox_events) RETURNS outbox_events LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
BEGIN
    e.id := coalesce(e.id, outlane_uuid7());
    e.created_at := coalesce(e.created_at, now());
    IF e.stream IS NULL THEN
        SELECT r.stream INTO e.stream FROM outlane_routes r WHERE e.topic ~ r.pattern ORDER BY r.position LIMIT 1;
        e.stream := coalesce(e.stream, '');
    END IF;
    e.processed := false;
    e.processed_at := NULL;
    e.error := NULL;
    e.attempts := 0;
    RETURN e;
END
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION outlane_before_insert() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'outlane is not set up in schema %', TG_TABLE_SCHEMA USING HINT = 'Run: outlane migrate up';
END
$$;
-- +goose StatementEnd

-- outlane_make_trigger writes the function that runs for each insert, with the settings of outlane_config as constants. Every microsecond of it is
-- paid by the producer's transaction, so that
--   * there is no SELECT in it: PL/pgSQL evaluates expressions alone ten times faster than queries;
--   * it is SECURITY DEFINER, so that a producer needs INSERT and nothing else, but has no SET search_path, which costs as much as the hash. So every
--     name and operator in it must be qualified or given as a function of pg_catalog, or a producer could put its own in the way;
--   * rare cases are left to outlane_complete.
-- +goose StatementBegin
CREATE FUNCTION outlane_make_trigger() RETURNS void LANGUAGE plpgsql SET search_path FROM CURRENT AS $make$
DECLARE
    c outlane_config;
    s name := current_schema();
BEGIN
    SELECT * INTO STRICT c FROM outlane_config;
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.outlane_before_insert() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS %L', s, format($body$
BEGIN
    -- The transaction has its id before it takes a number: the horizon depends on this order.
    NEW.xact := pg_catalog.pg_current_xact_id();
    NEW.xact_oldest := pg_catalog.pg_snapshot_xmin(pg_catalog.pg_current_snapshot());
    NEW.seq := pg_catalog.nextval(%1$L::pg_catalog.regclass);
    -- The number is taken before the idle mark is read: a worker raises the mark and then reads the number, so one of the two sees the other.
    IF NEW.id IS NULL OR NEW.created_at IS NULL OR NEW.stream IS NULL OR NEW.processed IS NOT FALSE OR NEW.processed_at IS NOT NULL
        OR NEW.error IS NOT NULL OR pg_catalog.int4ne(NEW.attempts, 0) IS NOT FALSE
        OR pg_catalog.int8eq(pg_catalog.pg_sequence_last_value(%5$L::pg_catalog.regclass), 2) THEN
        NEW := %2$s(NEW);
        IF pg_catalog.int8eq(pg_catalog.pg_sequence_last_value(%5$L::pg_catalog.regclass), 2) THEN
            PERFORM pg_catalog.pg_notify(%6$L, '');
        END IF;
    END IF;
    NEW.partition_key := coalesce(NEW.partition_key, pg_catalog.jsonb_object_field_text(NEW.payload, %3$L), NEW.stream);
    -- As outlane_partition_of.
    NEW.partition := pg_catalog.mod(pg_catalog.textcat('x', pg_catalog."left"(pg_catalog.md5(%7$s), 8))::bit(32)::bigint, %4$s::bigint)::int;
    RETURN NEW;
END
$body$, format('%I.outbox_events_seq', s), format('%I.outlane_complete', s), c.partition_key_field, c.partitions, format('%I.outlane_idle', s),
        'outlane_' || left(md5(s), 16),
        CASE getdatabaseencoding() WHEN 'UTF8' THEN 'NEW.partition_key' ELSE 'pg_catalog.convert_to(NEW.partition_key, ''UTF8'')' END));
END
$make$;
-- +goose StatementEnd

CREATE TRIGGER outlane_before_insert BEFORE INSERT ON outbox_events FOR EACH ROW EXECUTE FUNCTION outlane_before_insert();

-- +goose Down
DROP FUNCTION outlane_complete(outbox_events);
DROP TABLE outbox_events, outbox_dead_letters, outbox_parked_events, outlane_config, outlane_routes, outlane_partitions, outlane_lanes,
    outlane_lane_states, outlane_horizon, outlane_members, outlane_leases;
DROP SEQUENCE outlane_idle;
DROP FUNCTION outlane_before_insert();
DROP FUNCTION outlane_make_trigger();
DROP FUNCTION outbox_partition_of(text);
DROP FUNCTION outlane_partition_of(text, int);
DROP FUNCTION outlane_uuid7();
