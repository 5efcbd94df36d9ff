-- When the files of a version were given up to save space; 0 while they are kept.

-- +goose Up
ALTER TABLE versions ADD COLUMN collected BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE versions DROP COLUMN collected;
