-- What judges thought of the calls of an attempt, under the digest of all that they
-- were told: the first judgment stands for every run that asks for the same, and run,
-- policy and step are those that had it made. And the answers that could not be read,
-- by the step that asked.

-- +goose Up
CREATE TABLE judgments (
    key    TEXT   NOT NULL,
    model  TEXT   NOT NULL,
    scores TEXT   NOT NULL,
    run    TEXT   NOT NULL,
    policy TEXT   NOT NULL,
    step   BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (key)
);
CREATE INDEX judgments_of_step ON judgments (run, policy, step);

CREATE TABLE nonsense (
    run      TEXT   NOT NULL,
    policy   TEXT   NOT NULL,
    step     BIGINT NOT NULL,
    judgment TEXT   NOT NULL,
    try      BIGINT NOT NULL,
    answer   TEXT   NOT NULL,
    reason   TEXT   NOT NULL,
    at       BIGINT NOT NULL,
    PRIMARY KEY (run, policy, step, judgment, try)
);

-- +goose Down
DROP TABLE nonsense;
DROP TABLE judgments;
