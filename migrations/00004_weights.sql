-- +goose Up

-- weights says how much work a member's partitions are, for members that have lease.weights on: runs of partitions, "0-6=1,7=45".
ALTER TABLE outlane_members ADD COLUMN weights text NOT NULL DEFAULT '';

-- +goose Down

ALTER TABLE outlane_members DROP COLUMN weights;
