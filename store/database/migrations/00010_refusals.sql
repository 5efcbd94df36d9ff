-- The calls of an attempt that the gateway refused to answer, by the code of the error
-- that it gave instead: how many, and what the last of them was told.

-- +goose Up
CREATE TABLE refusals (
    run      TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    step     BIGINT NOT NULL,
    task     BIGINT NOT NULL,
    sample   BIGINT NOT NULL,
    attempt  BIGINT NOT NULL,
    code     TEXT   NOT NULL,
    message  TEXT   NOT NULL,
    times    BIGINT NOT NULL,
    first_at BIGINT NOT NULL,
    last_at  BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, code)
);

-- +goose Down
DROP TABLE refusals;
