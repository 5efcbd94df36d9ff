-- The blob of what a version's trainer gave the tokens of its batch; empty without one.

-- +goose Up
ALTER TABLE versions ADD COLUMN scores TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE versions DROP COLUMN scores;
