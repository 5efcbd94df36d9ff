-- Manifests of saved updates that nobody goes on from any more: later ones took their
-- place, or the version stands. A row goes when their files were given up.

-- +goose Up
CREATE TABLE superseded (
    manifest TEXT PRIMARY KEY
);

-- +goose Down
DROP TABLE superseded;
