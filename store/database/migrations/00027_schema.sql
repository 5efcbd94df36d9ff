-- The schema of a store, for SQLite and PostgreSQL. The number in this file's name is the
-- schema's number: a change of tables edits this file and raises it, until version 0.1.0.
-- Times are nanoseconds since 1970 in UTC, 0 for none. BYTEA columns hold blobs in SQLite
-- too, whose types are only a hint. Package store's documentation says how tokens and
-- log-probabilities are coded.

-- +goose Up
-- One row. id names the store; the directory with its blobs has the same name in a file.
-- mark counts moments: where a Temporal server belongs to the store alone, its database
-- has the same count, so that a copy of one of them from another time is noticed.
CREATE TABLE identity (
    one  BIGINT NOT NULL PRIMARY KEY,
    id   TEXT   NOT NULL,
    mark BIGINT NOT NULL
);

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

-- An attempt that failed has in failure in which way, in one word: "exit", "timeout", "hang"
-- and so on. stdout and stderr are what a program printed, in bounds; lines_before is how
-- many lines of standard output came before the last one, which is its result. verdict is
-- what the grader says of the result in words, or empty. returned is when the agent had
-- ended and its result could be graded.
CREATE TABLE attempts (
    run          TEXT   NOT NULL,
    kind         TEXT   NOT NULL,
    step         BIGINT NOT NULL,
    task         BIGINT NOT NULL,
    sample       BIGINT NOT NULL,
    attempt      BIGINT NOT NULL,
    task_id      TEXT   NOT NULL,
    policy       TEXT   NOT NULL,
    version      BIGINT NOT NULL,
    terms        TEXT   NOT NULL,
    key_hash     TEXT   NOT NULL,
    outcome      TEXT   NOT NULL,
    reward       DOUBLE PRECISION,
    result       TEXT   NOT NULL,
    error        TEXT   NOT NULL,
    calls        BIGINT NOT NULL,
    tokens       BIGINT NOT NULL,
    begun        BIGINT NOT NULL,
    ended        BIGINT NOT NULL,
    failure      TEXT   NOT NULL DEFAULT '',
    stdout       TEXT   NOT NULL DEFAULT '',
    stderr       TEXT   NOT NULL DEFAULT '',
    lines_before BIGINT NOT NULL DEFAULT 0,
    verdict      TEXT   NOT NULL DEFAULT '',
    returned     BIGINT NOT NULL DEFAULT 0,
    PRIMARY KEY (run, kind, step, task, sample, attempt)
);
CREATE INDEX attempts_of_task ON attempts (task_id) WHERE task_id <> '';
-- Attempts that a fault ended are few. Conversations are open and many.
CREATE INDEX attempts_cut_off ON attempts (run, begun) WHERE outcome IN ('', 'infra_fault') AND kind <> 'served';

-- prompt holds what follows the parent's prompt and completion. extent is the
-- number of tokens of the whole prompt and completion, chain their digest, by
-- which a child proves that it continues them. replayed_from is the attempt whose record
-- answered the call, 0 if it was sampled. recorded is when its commit began. diverged_from
-- is 0 except on the call from which on an attempt no longer repeats call diverged_seq of
-- that earlier attempt; difference says why. api is empty for chat completions. form is
-- the form that the reply was held to, empty for none. drift says whether the text,
-- tokenized anew, would not begin with the tokens of the call that it continues. server is
-- which server of others sampled it, empty for the built-in sampler. partly_read says that
-- the agent closed the stream of the reply after it had read a part of it. queued, prefill
-- and decode are the nanoseconds of duration that the built-in sampler spent on these, and
-- shared is how many tokens of the prompt it took over from earlier calls.
CREATE TABLE calls (
    run           TEXT   NOT NULL,
    kind          TEXT   NOT NULL,
    step          BIGINT NOT NULL,
    task          BIGINT NOT NULL,
    sample        BIGINT NOT NULL,
    attempt       BIGINT NOT NULL,
    seq           BIGINT NOT NULL,
    policy        TEXT   NOT NULL,
    id            TEXT   NOT NULL,
    parent        BIGINT NOT NULL,
    agent         TEXT   NOT NULL,
    version       BIGINT NOT NULL,
    weights       TEXT   NOT NULL,
    key           TEXT   NOT NULL,
    occurrence    BIGINT NOT NULL,
    prompt        BYTEA  NOT NULL,
    completion    BYTEA  NOT NULL,
    logprobs      BYTEA  NOT NULL,
    untrained     BYTEA,
    extent        BIGINT NOT NULL,
    chain         BYTEA  NOT NULL,
    seed          BIGINT NOT NULL,
    temperature   DOUBLE PRECISION NOT NULL,
    finish        TEXT   NOT NULL,
    parse_error   TEXT   NOT NULL,
    started       BIGINT NOT NULL,
    duration      BIGINT NOT NULL,
    replayed_from BIGINT NOT NULL,
    exchange      TEXT   NOT NULL,
    recorded      BIGINT NOT NULL,
    diverged_from BIGINT NOT NULL,
    diverged_seq  BIGINT NOT NULL,
    difference    TEXT   NOT NULL,
    api           TEXT   NOT NULL,
    form          BYTEA  NOT NULL,
    drift         BIGINT NOT NULL,
    server        TEXT   NOT NULL,
    partly_read   BIGINT NOT NULL,
    queued        BIGINT NOT NULL DEFAULT 0,
    prefill       BIGINT NOT NULL DEFAULT 0,
    decode        BIGINT NOT NULL DEFAULT 0,
    shared        BIGINT NOT NULL DEFAULT 0,
    top_p         DOUBLE PRECISION NOT NULL DEFAULT 0,
    PRIMARY KEY (run, kind, step, task, sample, attempt, seq, policy)
);
CREATE UNIQUE INDEX calls_key ON calls (run, kind, step, task, sample, attempt, policy, key, occurrence);
-- For accounts: few calls are replayed, diverge or are cut off at a limit of tokens, and a
-- run has very many. Replies of conversations are found by their ids.
CREATE INDEX calls_cut_off ON calls (run, kind, step, task, sample, attempt) WHERE finish = 'length';
CREATE INDEX calls_served ON calls (id) WHERE kind = 'served';
CREATE INDEX calls_diverged ON calls (run) WHERE diverged_from > 0;
CREATE INDEX calls_replayed ON calls (run) WHERE replayed_from > 0;

-- The bodies of calls. If base is not -1, request is a delta (package delta) to the response
-- and the request, in this order, of the call whose seq is base. If base is -1, request is
-- complete. cost is how many bytes must be read to get the request. digest is the SHA-256
-- of the request's length (8 bytes, little-endian), the request and the response.
CREATE TABLE exchanges (
    run      TEXT   NOT NULL,
    kind     TEXT   NOT NULL,
    step     BIGINT NOT NULL,
    task     BIGINT NOT NULL,
    sample   BIGINT NOT NULL,
    attempt  BIGINT NOT NULL,
    seq      BIGINT NOT NULL,
    base     BIGINT NOT NULL,
    cost     BIGINT NOT NULL,
    request  BYTEA  NOT NULL,
    response BYTEA  NOT NULL,
    digest   BYTEA  NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, seq)
);

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
    emitted BIGINT NOT NULL,
    PRIMARY KEY (run, kind, step, task, sample, attempt, name, call_id)
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

-- collected is when the files of a version were given up to save space, 0 while they are
-- kept. scores is the blob of what its trainer gave the tokens of its batch. begun is when
-- the process that made the version began, and work how long each part of it took.
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
    collected   BIGINT NOT NULL DEFAULT 0,
    scores      TEXT   NOT NULL,
    begun       BIGINT NOT NULL DEFAULT 0,
    work        TEXT   NOT NULL DEFAULT '{}',
    PRIMARY KEY (run, policy, number)
);

-- begun is when the process that made the batch began, and at when it recorded the batch.
CREATE TABLE batches (
    run       TEXT   NOT NULL,
    policy    TEXT   NOT NULL,
    step      BIGINT NOT NULL,
    digest    TEXT   NOT NULL,
    sequences BIGINT NOT NULL,
    tokens    BIGINT NOT NULL,
    trained   BIGINT NOT NULL,
    metrics   TEXT   NOT NULL,
    begun     BIGINT NOT NULL DEFAULT 0,
    at        BIGINT NOT NULL DEFAULT 0,
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

-- promoted is the pointer, promotions its history; seq counts moves from 1. source is
-- what moved the pointer, person is who did if it was one; a pin holds the pointer until
-- the unpin.
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
    source      TEXT   NOT NULL,
    person      TEXT   NOT NULL,
    PRIMARY KEY (run, policy, decision_id)
);
CREATE UNIQUE INDEX promotions_seq ON promotions (run, policy, seq);
CREATE INDEX promotions_version ON promotions (run, policy, version);

-- Who serves what, where, and until when by the database's own clock. A row stays
-- when its lease is over: the greatest epoch of a role is the last that was used.
CREATE TABLE leases (
    role    TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    url     TEXT   NOT NULL,
    epoch   BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (role, name)
);
CREATE UNIQUE INDEX leases_epoch ON leases (role, epoch);

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
CREATE INDEX decisions_candidate ON decisions (run, policy, candidate);
CREATE INDEX decisions_at ON decisions (run, policy, at);

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

-- How far the updates towards a version have come. The row goes when the version
-- stands.
CREATE TABLE progress (
    run      TEXT   NOT NULL,
    policy   TEXT   NOT NULL,
    number   BIGINT NOT NULL,
    basis    TEXT   NOT NULL,
    updates  BIGINT NOT NULL,
    manifest TEXT   NOT NULL,
    PRIMARY KEY (run, policy, number)
);

-- What agents tell of their attempts by OpenTelemetry. An exporter that sends a span
-- again changes nothing.
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

-- What judges thought of the calls of an attempt, under the digest of all that they
-- were told: the first judgment stands for every run that asks for the same, and run,
-- policy and step are those that had it made. And the answers that could not be read,
-- by the step that asked.
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

-- The calls of an attempt that the gateway refused to answer, by the code of the error
-- that it gave instead: how many, and what the last of them was told.
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

-- How often a grader command was asked about an attempt and gave no reward, and why.
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

-- Manifests of saved updates that nobody goes on from any more: later ones took their
-- place, or the version stands. A row goes when their files were given up.
CREATE TABLE superseded (
    manifest TEXT PRIMARY KEY
);

-- Files with tensors that are being written for a version which is not on record yet. A
-- row is there before its file is, and goes when the version's row names the file or when
-- the file was given up.
CREATE TABLE pending_files (
    run    TEXT    NOT NULL,
    policy TEXT    NOT NULL,
    number INTEGER NOT NULL,
    digest TEXT    NOT NULL,
    noted  BIGINT  NOT NULL,
    PRIMARY KEY (run, policy, number, digest)
);

-- Which tasks a step attempts, and why, where a curriculum chooses them: a record.Choice.
CREATE TABLE choices (
    run    TEXT   NOT NULL,
    policy TEXT   NOT NULL,
    step   BIGINT NOT NULL,
    choice TEXT   NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (run, policy, step)
);

-- What people did to runs, or wanted to: written before it is done, and again with the
-- answer. An id is asked once, however often somebody sends it.
CREATE TABLE actions (
    id      TEXT   PRIMARY KEY,
    run     TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    person  TEXT   NOT NULL,
    reason  TEXT   NOT NULL,
    input   TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    outcome TEXT   NOT NULL,
    result  TEXT   NOT NULL
);
CREATE INDEX actions_of_run ON actions (run, at);

-- The answers to the requests of a search for better prompts, in the order in which they
-- came, from 0: the first answer to a request stands. The search itself, its candidates and
-- its decisions follow from them. reflection is the key of the reply that an answer was read
-- from, or empty.
CREATE TABLE search_answers (
    run        TEXT   NOT NULL,
    number     BIGINT NOT NULL,
    request    TEXT   NOT NULL,
    answer     TEXT   NOT NULL,
    reflection TEXT   NOT NULL,
    at         BIGINT NOT NULL,
    PRIMARY KEY (run, request)
);
CREATE UNIQUE INDEX search_answers_in_order ON search_answers (run, number);

-- What reflectors replied, under the digest of all that they were told: the first reply
-- stands for every run that asks the same. run and request are those that had it made.
CREATE TABLE reflections (
    key     TEXT   NOT NULL PRIMARY KEY,
    reply   TEXT   NOT NULL,
    run     TEXT   NOT NULL,
    request TEXT   NOT NULL,
    at      BIGINT NOT NULL
);
CREATE INDEX reflections_of_run ON reflections (run);

-- The versions of a run's prompts. prompts is the blob with the texts and rules, candidate
-- the one of the search that became this version.
CREATE TABLE prompt_versions (
    run       TEXT   NOT NULL,
    number    BIGINT NOT NULL,
    parent    BIGINT NOT NULL,
    prompts   TEXT   NOT NULL,
    candidate TEXT   NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (run, number)
);

-- Candidates that answer a share of the conversations of users beside the promoted version,
-- control. status is "running", "promoted", "withdrawn" or "ended"; reason says why it ended.
-- result is what the last look showed, as JSON. ended is 0 while it is running.
CREATE TABLE experiments (
    run       TEXT   NOT NULL,
    policy    TEXT   NOT NULL,
    candidate BIGINT NOT NULL,
    control   BIGINT NOT NULL,
    share     DOUBLE PRECISION NOT NULL,
    status    TEXT   NOT NULL,
    reason    TEXT   NOT NULL,
    result    TEXT   NOT NULL,
    begun     BIGINT NOT NULL,
    ended     BIGINT NOT NULL,
    PRIMARY KEY (run, policy, candidate)
);
CREATE UNIQUE INDEX experiments_running ON experiments (run, policy) WHERE status = 'running';

-- What a candidate answers to copies of recorded requests, which nobody but the owner sees.
-- call_id is the call whose prompt was copied. finish is empty where error says why there is
-- no reply. duration is nanoseconds.
CREATE TABLE shadow_replies (
    run          TEXT   NOT NULL,
    policy       TEXT   NOT NULL,
    candidate    BIGINT NOT NULL,
    conversation BIGINT NOT NULL,
    call_id      TEXT   NOT NULL,
    reply        TEXT   NOT NULL,
    tokens       BIGINT NOT NULL,
    finish       TEXT   NOT NULL,
    duration     BIGINT NOT NULL,
    error        TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    PRIMARY KEY (run, policy, candidate, call_id)
);
CREATE INDEX shadow_replies_of_conversation ON shadow_replies (run, conversation);

-- What was removed at the request of a person, and why: the tombstones of runs, of tasks
-- within runs, and of records within runs. what is "run", "task" or "records"; task is the
-- task's id, or empty. A row is there before anything is removed; ended is 0 until all of it
-- is gone. report is what was found and removed, as JSON.
CREATE TABLE forgotten (
    run    TEXT   NOT NULL,
    what   TEXT   NOT NULL,
    task   TEXT   NOT NULL,
    person TEXT   NOT NULL,
    reason TEXT   NOT NULL,
    report TEXT   NOT NULL,
    begun  BIGINT NOT NULL,
    ended  BIGINT NOT NULL,
    PRIMARY KEY (run, what, task)
);

-- Conversations that clients had with served versions, numbered within a run from 0. The
-- calls of conversation N are those of the attempt served-0/N/0/1. name is what the client
-- calls it, or empty; client is the name of the API key by which it came, or empty; person is
-- the keyed hash of the user, or empty. pinned, candidate and redacted are 0 or 1;
-- experiment is the candidate of the experiment that it belongs to, or 0. last is when its
-- last call was recorded.
CREATE TABLE conversations (
    run        TEXT   NOT NULL,
    number     BIGINT NOT NULL,
    name       TEXT   NOT NULL,
    client     TEXT   NOT NULL,
    person     TEXT   NOT NULL,
    policy     TEXT   NOT NULL,
    version    BIGINT NOT NULL,
    pinned     BIGINT NOT NULL,
    experiment BIGINT NOT NULL,
    candidate  BIGINT NOT NULL,
    redacted   BIGINT NOT NULL,
    begun      BIGINT NOT NULL,
    last       BIGINT NOT NULL,
    PRIMARY KEY (run, number)
);
-- A client's name means one conversation of each user: with the version that was asked for by
-- its number, or with the one that was promoted when it began.
CREATE UNIQUE INDEX conversations_name ON conversations (run, client, person, name, policy, (CASE WHEN pinned = 1 THEN version ELSE -1 END)) WHERE name <> '';
CREATE INDEX conversations_last ON conversations (run, last);
CREATE INDEX conversations_person ON conversations (run, person) WHERE person <> '';

-- Where dialogs of conversations stand: digest is that of the messages up to and with a
-- recorded reply, or of the request that began a conversation, under the key of the client.
CREATE TABLE conversation_replies (
    run    TEXT   NOT NULL,
    client TEXT   NOT NULL,
    digest TEXT   NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (run, client, digest)
);
CREATE INDEX conversation_replies_of ON conversation_replies (run, number);

-- What people say of recorded replies: a record.Feedback. call_id is empty if it is about the
-- whole conversation. redacted is 1 if the corrected text differs from what was said. step is
-- the segment that learned from it, 0 for none.
CREATE TABLE feedback (
    run          TEXT   NOT NULL,
    id           TEXT   NOT NULL,
    conversation BIGINT NOT NULL,
    call_id      TEXT   NOT NULL,
    reward       DOUBLE PRECISION,
    thumb        TEXT   NOT NULL,
    corrected    TEXT,
    preferred    TEXT   NOT NULL,
    labels       TEXT   NOT NULL,
    person       TEXT   NOT NULL,
    comment      TEXT   NOT NULL,
    redacted     BIGINT NOT NULL DEFAULT 0,
    client       TEXT   NOT NULL,
    at           BIGINT NOT NULL,
    step         BIGINT NOT NULL,
    PRIMARY KEY (run, id)
);
CREATE INDEX feedback_of_conversation ON feedback (run, conversation);
CREATE INDEX feedback_unused ON feedback (run, at) WHERE step = 0;
CREATE INDEX feedback_person ON feedback (run, person) WHERE person <> '';

-- What each step of a run learns from conversations: a record.Segment.
CREATE TABLE segments (
    run     TEXT   NOT NULL,
    policy  TEXT   NOT NULL,
    step    BIGINT NOT NULL,
    segment TEXT   NOT NULL,
    at      BIGINT NOT NULL,
    PRIMARY KEY (run, policy, step)
);

-- What is recorded of a run's conversations, if it was changed since its spec was written:
-- the row with the greatest seq counts.
CREATE TABLE traffic_settings (
    run    TEXT   NOT NULL,
    seq    BIGINT NOT NULL,
    record TEXT   NOT NULL,
    person TEXT   NOT NULL,
    reason TEXT   NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (run, seq)
);

-- API keys of clients of served versions. hash is the SHA-256 of the key, hex; scopes are
-- separated by commas; per_minute bounds the requests of a key, 0 does not; revoked is 0
-- while the key is valid.
CREATE TABLE serving_keys (
    name       TEXT   NOT NULL PRIMARY KEY,
    hash       TEXT   NOT NULL,
    scopes     TEXT   NOT NULL,
    per_minute BIGINT NOT NULL,
    created    BIGINT NOT NULL,
    revoked    BIGINT NOT NULL
);
CREATE UNIQUE INDEX serving_keys_hash ON serving_keys (hash);

-- Random keys that the store makes for itself, hex. "users" is that of the hashes of users.
CREATE TABLE secrets (
    name   TEXT NOT NULL PRIMARY KEY,
    secret TEXT NOT NULL
);

-- The archived histories of a run. digest names a blob; it is empty if Temporal had deleted
-- all of the histories before. finished is when the run that was archived ended, 0 if it was
-- under way. histories counts the executions of workflows in the archive, and events theirs.
-- removed is 0 unless the blob is being removed; the row goes after the blob.
CREATE TABLE archives (
    run       TEXT   NOT NULL PRIMARY KEY,
    finished  BIGINT NOT NULL,
    digest    TEXT   NOT NULL,
    bytes     BIGINT NOT NULL,
    histories BIGINT NOT NULL,
    events    BIGINT NOT NULL,
    archived  BIGINT NOT NULL,
    removed   BIGINT NOT NULL
);

-- +goose Down
DROP TABLE archives;
DROP TABLE secrets;
DROP TABLE serving_keys;
DROP TABLE traffic_settings;
DROP TABLE segments;
DROP TABLE feedback;
DROP TABLE conversation_replies;
DROP TABLE conversations;
DROP TABLE forgotten;
DROP TABLE shadow_replies;
DROP TABLE experiments;
DROP TABLE prompt_versions;
DROP TABLE reflections;
DROP TABLE search_answers;
DROP TABLE actions;
DROP TABLE choices;
DROP TABLE pending_files;
DROP TABLE superseded;
DROP TABLE grading_failures;
DROP TABLE refusals;
DROP TABLE nonsense;
DROP TABLE judgments;
DROP TABLE spans;
DROP TABLE progress;
DROP TABLE quarantines;
DROP TABLE decisions;
DROP TABLE leases;
DROP TABLE promotions;
DROP TABLE promoted;
DROP TABLE evaluations;
DROP TABLE steps;
DROP TABLE batches;
DROP TABLE versions;
DROP TABLE events;
DROP TABLE rewards;
DROP TABLE exchanges;
DROP TABLE calls;
DROP TABLE attempts;
DROP TABLE rollouts;
DROP TABLE runs;
