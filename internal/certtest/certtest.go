// Package certtest makes certificates for tests, which are their own authorities.
//
// It is only for tests: the keys are not kept safe. Each certificate is for 127.0.0.1 and
// localhost.
package certtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/trust"
)

// Pair is a certificate and its key, both in PEM.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate with a serial number. It is valid between two times from now.
func Issue(t testing.TB, serial int64, from, until time.Duration) Pair {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(until),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost"}, IsCA: true, BasicConstraintsValid: true,
	}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	require.NoError(t, err)
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return Pair{
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: public}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret}),
	}
}

// Write writes the pair as two files of a directory, by renaming, as programs that renew
// certificates do.
func (p Pair) Write(t testing.TB, dir string) trust.Files {
	t.Helper()
	f := trust.Files{Cert: filepath.Join(dir, "cert.pem"), Key: filepath.Join(dir, "key.pem")}
	Replace(t, f.Cert, p.Cert)
	Replace(t, f.Key, p.Key)
	return f
}

// Replace replaces a file by another one with a text.
func Replace(t testing.TB, path string, text []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", text, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

// Files writes a certificate that is valid now, and returns the configuration of a client that
// accepts it.
func Files(t testing.TB) (trust.Files, *tls.Config) {
	t.Helper()
	files := Issue(t, 1, -time.Hour, time.Hour).Write(t, t.TempDir())
	trusted, err := trust.Authorities(files.Cert)
	require.NoError(t, err)
	return files, trusted
}

// Open returns a certificate that is valid now, and the configuration of a client that accepts
// it.
func Open(t testing.TB) (*trust.Certificate, *tls.Config) {
	t.Helper()
	files, trusted := Files(t)
	c, err := files.Open(zap.NewNop())
	require.NoError(t, err)
	return c, trusted
}
