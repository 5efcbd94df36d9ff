-- What people and the promotion rule decided, and the tasks that were set aside.

-- +goose Up

-- source is what moved the pointer; a pin holds it until the unpin. person is
-- who did, where it was one.
ALTER TABLE promotions ADD COLUMN source TEXT NOT NULL DEFAULT 'gate';
ALTER TABLE promotions ADD COLUMN person TEXT NOT NULL DEFAULT '';

-- decisions are those that moved nothing. No id is in promotions too.
CREATE TABLE decisions (
    run         TEXT   NOT NULL,
    policy      TEXT   NOT NULL,
    decision_id TEXT   NOT NULL,
    candidate   BIGINT NOT NULL,
    promoted    BIGINT NOT NULL,
    verdict     TEXT   NOT NULL,
    reason      TEXT   NOT NULL,
    evidence    TEXT   NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (run, policy, decision_id)
);

-- task is an ordinal in the stream of the kind, place the task's index in the
-- train split.
CREATE TABLE quarantines (
    run    TEXT   NOT NULL,
    policy TEXT   NOT NULL,
    step   BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    task   BIGINT NOT NULL,
    place  BIGINT NOT NULL,
    reason TEXT   NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (run, policy, step, kind, task)
);

-- For accounts: few calls are replayed, and a run has very many.
CREATE INDEX calls_replayed ON calls (run) WHERE replayed_from > 0;

-- +goose Down
DROP INDEX calls_replayed;
DROP TABLE quarantines;
DROP TABLE decisions;
ALTER TABLE promotions DROP COLUMN person;
ALTER TABLE promotions DROP COLUMN source;
