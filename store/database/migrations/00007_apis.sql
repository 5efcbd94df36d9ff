-- Which API a call came by (empty: chat completions), the form that its reply was held
-- to (empty: none), and whether its text, tokenized anew, would not begin with the
-- tokens of the call that it continues.

-- +goose Up
ALTER TABLE calls ADD COLUMN api TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN form BYTEA NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN drift BIGINT NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE calls DROP COLUMN drift;
ALTER TABLE calls DROP COLUMN form;
ALTER TABLE calls DROP COLUMN api;
