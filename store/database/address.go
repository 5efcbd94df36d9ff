package database

import (
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// IsPostgres reports whether an address is one of PostgreSQL.
func IsPostgres(address string) bool {
	scheme, _, _ := strings.Cut(address, "://")
	return scheme == "postgres" || scheme == "postgresql"
}

var (
	// scheme begins an address that is not a path.
	scheme = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9+.-]*:`)
	// keyword begins an address in libpq's other form, host=… password=….
	keyword = regexp.MustCompile(`^\s*(host|hostaddr|port|dbname|user|password|passfile|service|sslmode|options|application_name)\s*=`)
)

// addresses says what an address of a store may be.
const addresses = "give postgres://USER@HOST/NAME with the password in PGPASSWORD, sqlite:///absolute/path, or the path of an SQLite file"

// FilePath returns the path of the SQLite file at an address. It returns "" and no error
// for PostgreSQL. Errors are ErrUnusable and show no part of the address that could be a
// password.
func FilePath(address string) (string, error) {
	if bare := strings.Trim(address, " \t\r\n\"'"); bare != address && bare != "" { // it may be that of a server, with a password
		return "", fmt.Errorf("%w: its address has white space or quotes around it: leave them out", ErrUnusable)
	}
	if IsPostgres(address) {
		if _, err := url.Parse(address); err != nil { // its text may quote a password
			return "", fmt.Errorf("%w: its address is no URL: write special characters of user and password as %%2F for / or %%40 for @, or put the password into PGPASSWORD", ErrUnusable)
		}
		return "", nil
	}
	path, isURL := strings.CutPrefix(address, "sqlite://")
	switch {
	case strings.TrimSpace(path) == "":
		return "", fmt.Errorf("%w: its address is empty: %s", ErrUnusable, addresses)
	case keyword.MatchString(address):
		return "", fmt.Errorf("%w: its address has the form host=…: %s", ErrUnusable, addresses)
	case isURL && !strings.HasPrefix(path, "/"):
		return "", fmt.Errorf("%w: %q has no absolute path: write sqlite:///absolute/path", ErrUnusable, address)
	case strings.HasPrefix(address, ":"):
		return "", fmt.Errorf("%w: %q is no file: %s", ErrUnusable, address, addresses)
	case !isURL && scheme.MatchString(address):
		name, _, _ := strings.Cut(address, ":")
		return "", fmt.Errorf("%w: %s: is not a scheme of its addresses: %s (a path that begins so as ./%s:…)", ErrUnusable, name, addresses, name)
	}
	return path, nil
}

// Redacted returns an address for logs and errors: without any password.
func Redacted(address string) string {
	if path, err := FilePath(address); err == nil && path != "" {
		return address
	}
	u, err := url.Parse(address)
	if err != nil || !IsPostgres(address) {
		return "(an address that can't be read)"
	}
	query := u.Query()
	for name := range query {
		if strings.Contains(strings.ToLower(name), "pass") {
			query.Set(name, "xxxxx")
		}
	}
	if u.RawQuery != "" {
		u.RawQuery = query.Encode()
	}
	return u.Redacted()
}

// withoutSecrets returns err, whose text may quote an address, without its passwords.
func withoutSecrets(err error, address string) error {
	if err == nil {
		return nil
	}
	text := err.Error()
	for _, secret := range secrets(address) {
		text = strings.ReplaceAll(text, secret, "xxxxx")
	}
	return redactedError{err, text}
}

// redactedError is an error with another text.
type redactedError struct {
	error
	text string
}

func (e redactedError) Error() string { return e.text }

func (e redactedError) Unwrap() error { return e.error }

// secrets returns the passwords in an address, as they are written and as they are meant.
func secrets(address string) (out []string) {
	u, err := url.Parse(address)
	if err != nil {
		return nil
	}
	if user := u.User; user != nil {
		if password, ok := user.Password(); ok && password != "" {
			_, written, _ := strings.Cut(user.String(), ":")
			out = append(out, written, password)
		}
	}
	for pair := range strings.SplitSeq(u.RawQuery, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if strings.Contains(strings.ToLower(name), "pass") && value != "" {
			out = append(out, value)
			if meant, err := url.QueryUnescape(value); err == nil {
				out = append(out, meant)
			}
		}
	}
	return out
}
