package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/fulgurite/fulgurite/internal/readable"
	"github.com/fulgurite/fulgurite/internal/textfile"
)

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
