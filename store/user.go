package store

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/fulgurite/fulgurite/store/database"
)

const (
	insertUserKey = `INSERT INTO user_key (one, key) VALUES (1, $1) ON CONFLICT DO NOTHING`
	selectUserKey = `SELECT key FROM user_key`
)

// HashUser returns the name under which the store knows a user: the HMAC-SHA-256 of what a
// client calls the user, in hex. The key is random and in the store itself, so whoever can
// read the store can test a guess, and nobody else. No user is "".
func (s *Store) HashUser(ctx context.Context, user string) (string, error) {
	if user == "" {
		return "", nil
	}
	key := s.userKey.Load()
	if key == nil {
		read, err := s.readUserKey(ctx)
		if err != nil {
			return "", fmt.Errorf("read the key of users: %w", err)
		}
		key = &read
		s.userKey.Store(key)
	}
	mac := hmac.New(sha256.New, []byte(*key))
	_, _ = mac.Write([]byte(user)) // a hash never fails
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// readUserKey returns the key on record, and makes one if there is none.
func (s *Store) readUserKey(ctx context.Context) (key string, err error) {
	made := rand.Text() + rand.Text()
	err = s.db.Write(ctx, database.SurvivesPowerLoss, func(t database.Tx) (err error) {
		if _, err := t.Exec(insertUserKey, made); err != nil {
			return err
		}
		key, err = database.One(t.Ctx, t, database.Scalar[string], selectUserKey)
		return err
	})
	return key, err
}
