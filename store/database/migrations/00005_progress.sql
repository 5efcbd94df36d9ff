-- How far the updates towards a version have come. The row goes when the version
-- stands.

-- +goose Up
CREATE TABLE progress (
    run      TEXT   NOT NULL,
    policy   TEXT   NOT NULL,
    number   BIGINT NOT NULL,
    basis    TEXT   NOT NULL,
    updates  BIGINT NOT NULL,
    manifest TEXT   NOT NULL,
    PRIMARY KEY (run, policy, number)
);

-- +goose Down
DROP TABLE progress;
