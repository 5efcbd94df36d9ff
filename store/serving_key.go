package store

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertServingKey  = `INSERT INTO serving_keys (name, hash, scopes, per_minute, created, revoked) VALUES ($1, $2, $3, $4, $5, 0) ON CONFLICT DO NOTHING`
	selectServingKeys = `SELECT name, scopes, per_minute, created, revoked FROM serving_keys`
	revokeServingKey  = `UPDATE serving_keys SET revoked = $2 WHERE name = $1 AND revoked = 0`
)

// servingKeyPrefix begins every serving key that a store makes, so that people and programs
// that look for secrets in texts know it.
const servingKeyPrefix = "fulgurite-"

// servingKeyLength is how many characters follow the prefix: two texts of rand.Text, with 128
// random bits each.
const servingKeyLength = 52

// CreateServingKey makes a serving key and returns it. Only its SHA-256 is on record. A name
// that a key has or had is record.ErrConflict: conversations are recorded under it.
func (s *Store) CreateServingKey(ctx context.Context, k record.ServingKey) (secret string, err error) {
	if err := k.Check(); err != nil {
		return "", err
	}
	secret = servingKeyPrefix + strings.ToLower(rand.Text()+rand.Text())
	created := database.Nanos(orNow(k.Created))
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		// If it was uncertain whether a write was committed, it is repeated with the same
		// secret.
		if _, err := t.Exec(insertServingKey, k.Name, hashOf(secret), strings.Join(k.Scopes, ","), k.PerMinute, created); err != nil {
			return err
		}
		hash, err := database.One(t.Ctx, t, database.Scalar[string], `SELECT hash FROM serving_keys WHERE name = $1`, k.Name)
		if err == nil && hash != hashOf(secret) {
			err = fmt.Errorf("%w: there is a key with this name, or there was", record.ErrConflict)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("create serving key %s: %w", k.Name, err)
	}
	return secret, nil
}

// ServingKeyOf returns the serving key whose SHA-256, in hex, is hash, also if it was revoked.
// If there is none, the error wraps record.ErrNotFound.
func (s *Store) ServingKeyOf(ctx context.Context, hash string) (record.ServingKey, error) {
	k, err := database.One(ctx, s.db.Read(), readServingKey, selectServingKeys+` WHERE hash = $1`, hash)
	if err != nil {
		return k, fmt.Errorf("find serving key: %w", notFound(err))
	}
	return k, nil
}

// ServingKeys returns all serving keys by name, revoked ones too.
func (s *Store) ServingKeys(ctx context.Context) ([]record.ServingKey, error) {
	all, err := database.List(ctx, s.db.Read(), readServingKey, selectServingKeys+` ORDER BY name`)
	if err != nil {
		return nil, fmt.Errorf("list serving keys: %w", err)
	}
	return all, nil
}

// RevokeServingKey ends a serving key. Gateways refuse it within a second. A key that was
// revoked before is no error, and one that never was is record.ErrNotFound.
func (s *Store) RevokeServingKey(ctx context.Context, name string) error {
	now := database.Nanos(time.Now())
	err := s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) error {
		n, err := t.Exec(revokeServingKey, name, now)
		if err != nil || n > 0 {
			return err
		}
		_, err = database.One(t.Ctx, t, database.Scalar[string], `SELECT name FROM serving_keys WHERE name = $1`, name)
		return notFound(err)
	})
	if err != nil {
		return fmt.Errorf("revoke serving key %s: %w", name, err)
	}
	return nil
}

func readServingKey(row database.Scan) (k record.ServingKey, err error) {
	var scopes string
	err = row(&k.Name, &scopes, &k.PerMinute, at(&k.Created), at(&k.Revoked))
	k.Scopes = strings.Split(scopes, ",")
	return k, err
}

// ServingKeys finds serving keys by what clients present.
type ServingKeys struct{ Store *Store }

// Key returns the serving key that a client presents. ok is false if there is none. A key
// that was revoked is returned, too. What can't be a serving key is not looked for.
func (k ServingKeys) Key(ctx context.Context, presented string) (key record.ServingKey, ok bool, err error) {
	if !strings.HasPrefix(presented, servingKeyPrefix) || len(presented) != len(servingKeyPrefix)+servingKeyLength {
		return key, false, nil
	}
	key, err = k.Store.ServingKeyOf(ctx, hashOf(presented))
	if errors.Is(err, record.ErrNotFound) {
		return key, false, nil
	}
	return key, err == nil, err
}

func hashOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}
