-- What the journal of model calls says of a call beside its tokens. replayed_from is
-- the attempt whose record answered it, 0 if it was sampled. recorded is when its
-- commit began. diverged_from is 0 but on the call from which on an attempt no longer
-- repeats call diverged_seq of that earlier attempt; difference says why.

-- +goose Up
ALTER TABLE calls ADD COLUMN replayed_from BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN exchange TEXT NOT NULL DEFAULT '';
ALTER TABLE calls ADD COLUMN recorded BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN diverged_from BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN diverged_seq BIGINT NOT NULL DEFAULT 0;
ALTER TABLE calls ADD COLUMN difference TEXT NOT NULL DEFAULT '';
CREATE INDEX calls_diverged ON calls (run) WHERE diverged_from > 0;

-- +goose Down
DROP INDEX calls_diverged;
ALTER TABLE calls DROP COLUMN difference;
ALTER TABLE calls DROP COLUMN diverged_seq;
ALTER TABLE calls DROP COLUMN diverged_from;
ALTER TABLE calls DROP COLUMN recorded;
ALTER TABLE calls DROP COLUMN exchange;
ALTER TABLE calls DROP COLUMN replayed_from;
