-- Which server of others sampled a call; empty for the built-in sampler, and for calls
-- that an older release recorded.

-- +goose Up
ALTER TABLE calls ADD COLUMN server TEXT NOT NULL DEFAULT '';

-- +goose Down
ALTER TABLE calls DROP COLUMN server;
