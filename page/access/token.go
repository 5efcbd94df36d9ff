package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/textfile"
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

// ErrToken is wrapped when a token can't be made or revoked. The text names the field.
var ErrToken = errors.New("no such change of the tokens")

// File keeps tokens. Any number of processes may read and change it at once.
type File string

// content is the content of the file.
type content struct {
	Tokens []Token `json:"tokens"`
}

// Tokens reads all tokens, in the order in which they were made. If the file does not
// exist, the error wraps fs.ErrNotExist.
func (f File) Tokens() ([]Token, error) {
	data, err := textfile.Read(string(f))
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	var c content
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields() // a misspelt field might be "expires"
	if err := d.Decode(&c); err != nil {
		return nil, fmt.Errorf("read the tokens of %s: %w", f, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read the tokens of %s: something follows the end", f)
	}
	for i, t := range c.Tokens {
		if err := t.Check(); err != nil {
			return nil, fmt.Errorf("read the tokens of %s: token %d: %w", f, i+1, err)
		}
	}
	return c.Tokens, nil
}

// Create makes a token and returns its secret, which is stored nowhere. It makes the file
// if there is none. If expires is zero, the token never expires.
func (f File) Create(name string, rights []Right, now, expires time.Time) (secret string, err error) {
	secret = newSecret()
	t := Token{Name: name, Rights: rights, SHA256: digestOf(secret), Created: now.UTC().Truncate(time.Second), Expires: expires.UTC().Truncate(time.Second)}
	if expires.IsZero() {
		t.Expires = time.Time{}
	}
	if err := t.Check(); err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	if t.Expired(now) {
		return "", fmt.Errorf("%w: expires: %s is in the past", ErrToken, readable.Time(t.Expires))
	}
	return secret, f.change(func(all []Token) ([]Token, error) {
		if slices.ContainsFunc(all, func(o Token) bool { return o.Name == name }) {
			return nil, fmt.Errorf("%w: name: there is a token %s: revoke it, or take another name", ErrToken, name)
		}
		return append(all, t), nil
	})
}

// Revoke removes a token from the file.
func (f File) Revoke(name string) error {
	return f.change(func(all []Token) ([]Token, error) {
		left := slices.DeleteFunc(slices.Clone(all), func(t Token) bool { return t.Name == name })
		if len(left) == len(all) {
			return nil, fmt.Errorf("%w: name: %s has no token %q", ErrToken, f, name)
		}
		return left, nil
	})
}

// change replaces the whole content of the file. A lock keeps other processes from
// changing it at the same time.
func (f File) change(edit func([]Token) ([]Token, error)) (err error) {
	if err := os.MkdirAll(filepath.Dir(string(f)), 0o755); err != nil {
		return fmt.Errorf("change the tokens of %s: %w", f, err)
	}
	lock, err := os.OpenFile(string(f)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("lock the tokens of %s: %w", f, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }() // this also releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("lock the tokens of %s: %w", f, err)
	}
	all, err := f.Tokens()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if all, err = edit(all); err != nil {
		return err
	}
	data, err := json.MarshalIndent(content{all}, "", "  ")
	if err == nil {
		err = replace(string(f), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the tokens of %s: %w", f, err)
	}
	return nil
}

// replace writes a file that only its owner can read. Whatever happens, the file has all
// of its old content or all of its new content.
func replace(path string, data []byte) (err error) {
	part, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*") // mode 0600
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(part.Name()))
		}
	}()
	_, err = part.Write(data)
	if err == nil {
		err = part.Sync()
	}
	if err = errors.Join(err, part.Close()); err != nil {
		return err
	}
	return os.Rename(part.Name(), path)
}
