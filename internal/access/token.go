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

// The rights. Who may operate may read.
const (
	Read    Right = "read"
	Operate Right = "operate"
)

// Token is one as its file has it.
type Token struct {
	Name   string  `json:"name"`
	Rights []Right `json:"rights"`
	// SHA256 is the digest of the secret, in hexadecimal.
	SHA256  string    `json:"sha256"`
	Created time.Time `json:"created"`
	// Expires is when it ends; zero is never.
	Expires time.Time `json:"expires,omitzero"`
}

// prefix makes secrets recognizable, to people and to scanners of leaked ones.
const prefix = "fulgurite_"

// secretBytes are random.
const secretBytes = 32

var tokenName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)

// newSecret is the secret of a new token.
func newSecret() string {
	b := make([]byte, secretBytes)
	_, _ = rand.Read(b) // it never fails
	return prefix + base64.RawURLEncoding.EncodeToString(b)
}

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Allows reports whether rights are enough for what needs one.
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
			return fmt.Errorf("rights: %q is none: want read or operate", r)
		}
	}
	return nil
}

// find is the token that has the digest, however many there are and whichever it is: the
// time it takes says nothing.
func find(tokens []Token, digest string) (found Token, ok bool) {
	for _, t := range tokens {
		if subtle.ConstantTimeCompare([]byte(t.SHA256), []byte(digest)) == 1 {
			found, ok = t, true
		}
	}
	return found, ok
}
