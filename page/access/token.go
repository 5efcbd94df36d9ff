package access

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Right says what a token allows.
type Right string

// The rights. Operate includes Read.
const (
	Read    Right = "read"
	Operate Right = "operate"
)

// Token is a token as the file holds it.
type Token struct {
	Name   string  `json:"name"`
	Rights []Right `json:"rights"`
	// SHA256 is the digest of the secret, in hexadecimal.
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
	// Expires is when the token expires; zero means never.
	Expires time.Time `json:"expires,omitzero"`
}

// prefix begins every secret, so that people, and scanners for leaked secrets, recognize
// it.
const prefix = "fulgurite_"

// secretBytes is the number of random bytes in a secret.
const secretBytes = 32

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// newSecret returns the secret of a new token.
func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Allows reports whether rights include the right that is needed.
func Allows(rights []Right, need Right) bool {
	return slices.Contains(rights, need) || need == Read && slices.Contains(rights, Operate)
}

// Expired reports whether the token's time is over.
func (t Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Check reports what is wrong with a token, naming the field.
func (t Token) Check() error {
	switch sum, err := hex.DecodeString(t.SHA256); {
	case !tokenName.MatchString(t.Name):
		return fmt.Errorf("name %q: want up to 64 letters, digits, '.', '_', '@' or '-', a letter or digit first", t.Name)
	case len(t.Rights) == 0:
		return errors.New("rights: missing: read or operate")
	case err != nil || len(sum) != sha256.Size:
		return errors.New("sha256: want 64 hexadecimal digits")
	}
	for _, r := range t.Rights {
		if r != Read && r != Operate {
			return fmt.Errorf("rights: %q is unknown: want read or operate", r)
		}
	}
	return nil
}

// find returns the token that has the digest. It compares all tokens, so the time that it
// takes reveals nothing.
func find(tokens []Token, digest string) (found Token, ok bool) {
	for _, t := range tokens {
		if subtle.ConstantTimeCompare([]byte(t.SHA256), []byte(digest)) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
