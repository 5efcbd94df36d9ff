-- Who serves what, where, and until when by the database's own clock. A row stays
-- when its lease is over: the greatest epoch of a role is the last that was used.

-- +goose Up
CREATE TABLE leases (
    role    TEXT   NOT NULL,
    name    TEXT   NOT NULL,
    url     TEXT   NOT NULL,
    epoch   BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    PRIMARY KEY (role, name)
);
CREATE UNIQUE INDEX leases_epoch ON leases (role, epoch);

-- +goose Down
DROP TABLE leases;
