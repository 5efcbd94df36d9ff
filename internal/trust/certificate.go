package trust

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"go.uber.org/zap"
)

// Files are the flags that name the certificate of a process. Whoever embeds them gives the
// prefix of their environment variables.
type Files struct {
	Cert string `help:"Certificate to serve over TLS with, PEM, followed by those that it depends on. It is read again when the file changes." name:"tls-cert" env:"TLS_CERT" placeholder:"FILE" type:"path"`
	Key  string `help:"Its key, PEM." name:"tls-key" env:"TLS_KEY" placeholder:"FILE" type:"path"`
}

// Given reports whether there is a certificate.
func (f Files) Given() bool { return f.Cert != "" }

// Check returns an error if one of the files is not named.
func (f Files) Check() error {
	switch {
	case f.Cert != "" && f.Key == "":
		return fmt.Errorf("--tls-cert %s: give --tls-key too, or neither", f.Cert)
	case f.Key != "" && f.Cert == "":
		return fmt.Errorf("--tls-key %s: give --tls-cert too, or neither", f.Key)
	}
	return nil
}

// Open reads the certificate. It returns nil if the files name none.
func (f Files) Open(log *zap.Logger) (*Certificate, error) {
	if err := f.Check(); err != nil || !f.Given() {
		return nil, err
	}
	c := &Certificate{files: f, log: log, now: time.Now}
	seen, err := f.stat()
	if err != nil {
		return nil, err
	}
	if c.pair, err = f.read(c.now()); err != nil {
		return nil, err
	}
	c.seen = seen
	return c, nil
}

// state says which files were read.
type state struct{ cert, key os.FileInfo }

func (s state) equal(other state) bool {
	return same(s.cert, other.cert) && same(s.key, other.key)
}

func same(a, b os.FileInfo) bool {
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

func (f Files) stat() (s state, err error) {
	if s.cert, err = os.Stat(f.Cert); err != nil {
		return s, fmt.Errorf("--tls-cert: %w", err)
	}
	if s.key, err = os.Stat(f.Key); err != nil {
		return s, fmt.Errorf("--tls-key: %w", err)
	}
	return s, nil
}

// read reads the pair and checks that it can be used now.
func (f Files) read(now time.Time) (*tls.Certificate, error) {
	chain, err := os.ReadFile(f.Cert)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := os.ReadFile(f.Key)
	if err != nil {
		return nil, fmt.Errorf("--tls-key: %w", err)
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert %s and --tls-key %s: %w", f.Cert, f.Key, err)
	}
	leaf, err := x509.ParseCertificate(pair.Certificate[0])
	switch {
	case err != nil:
		return nil, fmt.Errorf("--tls-cert %s: %w", f.Cert, err)
	case now.After(leaf.NotAfter):
		return nil, fmt.Errorf("--tls-cert %s: the certificate expired on %s: renew it", f.Cert, leaf.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("--tls-cert %s: the certificate is valid only from %s on, and this machine's clock says %s", f.Cert, leaf.NotBefore.UTC().Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	}
	return &pair, nil
}

// Certificate is a certificate of this process. It is safe for concurrent use.
type Certificate struct {
	files Files
	log   *zap.Logger
	now   func() time.Time

	mu   sync.Mutex
	pair *tls.Certificate
	seen state
}

// Config returns the configuration of a server. The server has to add the protocols that it
// speaks.
func (c *Certificate) Config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current(), nil }}
}

// current returns the certificate for a new connection. While files that changed can't be
// used, for example because only one of them is written yet, it stays the one before, and the
// log has the reason.
func (c *Certificate) current() *tls.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, err := c.files.stat()
	if err == nil && now.equal(c.seen) {
		return c.pair
	}
	var pair *tls.Certificate
	if err == nil {
		pair, err = c.files.read(c.now())
	}
	if err != nil {
		c.log.Warn("the certificate changed and can't be used: connections get the one before", zap.Error(err))
		return c.pair
	}
	c.pair, c.seen = pair, now
	c.log.Info("the certificate was read again", zap.String("file", c.files.Cert))
	return c.pair
}

// Peers says how a process asks other processes of its fleet. The zero value presents no key
// and accepts the certificates that the system accepts.
type Peers struct {
	// Key is the key of the fleet.
	Key string
	// TLS says which certificates are accepted; nil is what the system accepts.
	TLS *tls.Config
}

// ErrNoCertificate says that a file has none.
var ErrNoCertificate = errors.New("no certificate in PEM")

// Authorities returns the configuration of clients that accept the certificates of the
// authorities in a file, in addition to those of the system. Without a file it returns nil.
func Authorities(file string) (*tls.Config, error) {
	if file == "" {
		return nil, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without certificates
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("--tls-ca %s: %w", file, ErrNoCertificate)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
