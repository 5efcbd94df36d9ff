-- In what way an attempt failed, in one word: "exit", "timeout", "hang" and so on;
-- empty where it did not, or where nothing is known of it.

-- +goose Up
ALTER TABLE attempts ADD COLUMN failure TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE attempts DROP COLUMN failure;
