-- How often a grader command was asked about an attempt and gave no reward, and why.

-- +goose Up
CREATE TABLE grading_failures (
    run     TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    task    BIGINT NOT NULL,
    sample  BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    try     BIGINT NOT NULL,
    error   TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, try)
);

-- +goose Down
DROP TABLE grading_failures;
