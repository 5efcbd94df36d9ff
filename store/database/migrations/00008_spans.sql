-- What agents tell of their attempts by OpenTelemetry. An exporter that sends a span
-- again changes nothing.

-- +goose Up
CREATE TABLE spans (
    run          TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    step         BIGINT NOT NULL,
    task         BIGINT NOT NULL,
    sample       BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    trace        TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    parent       TEXT   NOT NULL,
    type         TEXT   NOT NULL,
    name         TEXT   NOT NULL,
    started      BIGINT NOT NULL,
    ended        BIGINT NOT NULL,
    failed       BIGINT NOT NULL,
    message      TEXT   NOT NULL,
    call_id      TEXT   NOT NULL,
    agent        TEXT   NOT NULL,
    tool         TEXT   NOT NULL,
    tool_call_id TEXT   NOT NULL,
    attributes   TEXT   NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, trace, id)
);

-- +goose Down
DROP TABLE spans;
