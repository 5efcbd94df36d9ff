-- One schema for SQLite and PostgreSQL. Times are nanoseconds since 1970 in UTC,
-- 0 for none. BYTEA columns hold blobs in SQLite too, whose types are only a hint.
-- Package store's documentation says how tokens and log-probabilities are coded.

-- +goose Up
CREATE TABLE runs (
    name         TEXT   NOT NULL PRIMARY KEY,
    workflow_id  TEXT   NOT NULL,
    execution_id TEXT   NOT NULL,
    spec_digest  TEXT   NOT NULL,
    spec         TEXT   NOT NULL,
    splits       TEXT   NOT NULL,
    status       TEXT   NOT NULL,
    result       TEXT   NOT NULL,
    created      BIGINT NOT NULL,
    finished     BIGINT NOT NULL
);

-- attempt is the number of the current attempt. The row is also the lock that
-- every write to one of the rollout's attempts takes.
CREATE TABLE rollouts (
    run     TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    task    BIGINT NOT NULL,
    sample  BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample)
);

CREATE TABLE attempts (
    run      TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    step     BIGINT NOT NULL,
    task     BIGINT NOT NULL,
    sample   BIGINT NOT NULL,
    attempt  BIGINT NOT NULL,
    task_id  TEXT   NOT NULL,
    policy   TEXT   NOT NULL,
    version  BIGINT NOT NULL,
    terms    TEXT   NOT NULL,
    key_hash TEXT   NOT NULL,
    outcome  TEXT   NOT NULL,
    reward   DOUBLE PRECISION,
    result   TEXT   NOT NULL,
    error    TEXT   NOT NULL,
    calls    BIGINT NOT NULL,
    tokens   BIGINT NOT NULL,
    begun    BIGINT NOT NULL,
    ended    BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt)
);

-- prompt holds what follows the parent's prompt and completion. extent is the
-- number of tokens of the whole prompt and completion, chain their digest, by
-- which a child proves that it continues them.
CREATE TABLE calls (
    run         TEXT   NOT NULL,
    kind        TEXT   NOT NULL,
    step        BIGINT NOT NULL,
    task        BIGINT NOT NULL,
    sample      BIGINT NOT NULL,
    attempt     BIGINT NOT NULL,
    seq         BIGINT NOT NULL,
    policy      TEXT   NOT NULL,
    id          TEXT   NOT NULL,
    parent      BIGINT NOT NULL,
    agent       TEXT   NOT NULL,
    version     BIGINT NOT NULL,
    weights     TEXT   NOT NULL,
    key         TEXT   NOT NULL,
    occurrence  BIGINT NOT NULL,
    prompt      BYTEA  NOT NULL,
    completion  BYTEA  NOT NULL,
    logprobs    BYTEA  NOT NULL,
    untrained   BYTEA,
    extent      BIGINT NOT NULL,
    chain       BYTEA  NOT NULL,
    seed        BIGINT NOT NULL,
    temperature DOUBLE PRECISION NOT NULL,
    finish      TEXT   NOT NULL,
    parse_error TEXT   NOT NULL,
    request     BYTEA  NOT NULL,
    response    BYTEA  NOT NULL,
    started     BIGINT NOT NULL,
    duration    BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, seq, policy)
);
CREATE UNIQUE INDEX calls_key ON calls (run, kind, step, task, sample, attempt, policy, key, occurrence);

CREATE TABLE rewards (
    run     TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    task    BIGINT NOT NULL,
    sample  BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    name    TEXT   NOT NULL,
    value   DOUBLE PRECISION NOT NULL,
    call_id TEXT   NOT NULL,
    source  TEXT   NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, name)
);

CREATE TABLE events (
    run     TEXT   NOT NULL,
    kind    TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    task    BIGINT NOT NULL,
    sample  BIGINT NOT NULL,
    attempt BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    name    TEXT   NOT NULL,
    fields  TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, seq)
);

CREATE TABLE versions (
    run         TEXT   NOT NULL,
    policy      TEXT   NOT NULL,
    number      BIGINT NOT NULL,
    parent      BIGINT NOT NULL,
    manifest    TEXT   NOT NULL,
    weights     TEXT   NOT NULL,
    batch       TEXT   NOT NULL,
    fingerprint TEXT   NOT NULL,
    metrics     TEXT   NOT NULL,
    created     BIGINT NOT NULL,
    PRIMARY KEY (run, policy, number)
);

CREATE TABLE batches (
    run       TEXT   NOT NULL,
    policy    TEXT   NOT NULL,
    step      BIGINT NOT NULL,
    digest    TEXT   NOT NULL,
    sequences BIGINT NOT NULL,
    tokens    BIGINT NOT NULL,
    trained   BIGINT NOT NULL,
    metrics   TEXT   NOT NULL,
    PRIMARY KEY (run, policy, step)
);

CREATE TABLE steps (
    run     TEXT   NOT NULL,
    policy  TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    batch   TEXT   NOT NULL,
    metrics TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (run, policy, step)
);

CREATE TABLE evaluations (
    run       TEXT   NOT NULL,
    policy    TEXT   NOT NULL,
    kind      TEXT   NOT NULL,
    version   BIGINT NOT NULL,
    tasks     BIGINT NOT NULL,
    rollouts  BIGINT NOT NULL,
    mean      DOUBLE PRECISION NOT NULL,
    std_error DOUBLE PRECISION NOT NULL,
    greedy    DOUBLE PRECISION,
    at        BIGINT NOT NULL,
    PRIMARY KEY (run, policy, kind, version)
);

-- promoted is the pointer, promotions its history; seq counts moves from 1.
CREATE TABLE promoted (
    run     TEXT   NOT NULL,
    policy  TEXT   NOT NULL,
    version BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    PRIMARY KEY (run, policy)
);

CREATE TABLE promotions (
    run         TEXT   NOT NULL,
    policy      TEXT   NOT NULL,
    decision_id TEXT   NOT NULL,
    seq         BIGINT NOT NULL,
    version     BIGINT NOT NULL,
    previous    BIGINT NOT NULL,
    reason      TEXT   NOT NULL,
    evidence    TEXT   NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (run, policy, decision_id)
);
CREATE UNIQUE INDEX promotions_seq ON promotions (run, policy, seq);

-- +goose Down
DROP TABLE promotions;
DROP TABLE promoted;
DROP TABLE evaluations;
DROP TABLE steps;
DROP TABLE batches;
DROP TABLE versions;
DROP TABLE events;
DROP TABLE rewards;
DROP TABLE calls;
DROP TABLE attempts;
DROP TABLE rollouts;
DROP TABLE runs;
