-- +goose Up

-- outlane_pool names the pool whose workers have the partitions, in one row that they keep fresh. Leases keep two workers of a pool apart; this
-- keeps two pools apart that would share the table, and with it the epochs.
CREATE TABLE outlane_pool (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    pool      text NOT NULL,
    seen_at   timestamptz NOT NULL DEFAULT now()
) WITH (fillfactor = 50);

-- +goose Down

DROP TABLE outlane_pool;
