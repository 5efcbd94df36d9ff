-- What an agent that is a program printed, in bounds, and how many lines stood on its
-- standard output before the last one, which is its result.

-- +goose Up
ALTER TABLE attempts ADD COLUMN stdout TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN stderr TEXT NOT NULL DEFAULT '';
ALTER TABLE attempts ADD COLUMN lines_before BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE attempts DROP COLUMN lines_before;
ALTER TABLE attempts DROP COLUMN stderr;
ALTER TABLE attempts DROP COLUMN stdout;
