package workers_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/internal/devserver"
	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/workers"
)

func TestTheFleetsPageTakesTokens(t *testing.T) {
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	database, flags := state(t)
	open(t, database)
	tokens := access.File(filepath.Join(t.TempDir(), "tokens.json"))
	secret, err := tokens.Create("ada", []access.Right{access.Read}, time.Now(), time.Time{})
	require.NoError(t, err)
	r := begin(t, append([]string{"page", "--listen", "127.0.0.1:0", "--tokens", string(tokens), "--temporal-address", server.Address()}, flags...)...)
	address := r.page(t)
	for secret, want := range map[string]int{"": http.StatusUnauthorized, secret: http.StatusOK} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		if secret != "" {
			request.Header.Set("Authorization", "Bearer "+secret)
		}
		reply, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, want, reply.StatusCode, string(body))
	}
	r.stop()
	require.Zero(t, <-r.code, r.log.String())
}

// page waits for the page that the process serves, and returns its address.
func (r *running) page(t *testing.T) string {
	t.Helper()
	r.log.await(t, `"msg":"started"`)
	_, rest, found := strings.Cut(r.log.String(), "serving the page")
	require.True(t, found)
	return regexp.MustCompile(`https?://[^"]+:\d+`).FindString(rest)
}

// certificate writes a certificate for 127.0.0.1 and its key, and returns the pool that trusts
// it.
func certificate(t *testing.T) (cert, key string, trusted *x509.CertPool) {
	t.Helper()
	files, accepted := certtest.Files(t)
	return files.Cert, files.Key, accepted.RootCAs
}

func TestThePageIsServedOverTLS(t *testing.T) {
	t.Parallel()
	server, err := devserver.Start(t.Context(), devserver.Options{Log: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	database, flags := state(t)
	open(t, database)
	tokens := access.File(filepath.Join(t.TempDir(), "tokens.json"))
	secret, err := tokens.Create("ada", []access.Right{access.Read}, time.Now(), time.Time{})
	require.NoError(t, err)
	cert, key, trusted := certificate(t)
	r := begin(t, append([]string{"page", "--listen", "127.0.0.1:0", "--tokens", string(tokens), "--tls-cert", cert, "--tls-key", key, "--temporal-address", server.Address()}, flags...)...)
	address := r.page(t)
	require.Regexp(t, `^https://127\.0\.0\.1:\d+$`, address)
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	browser := http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer browser.CloseIdleConnections()
	ask := func(c *http.Client, method, address, form string) (int, string, string) {
		request, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(form))
		require.NoError(t, err)
		request.Header.Set("Accept", "text/html")
		if form != "" {
			request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
		reply, err := c.Do(request)
		require.NoError(t, err)
		body, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		return reply.StatusCode, reply.Request.URL.Path, string(body)
	}

	code, path, _ := ask(&browser, http.MethodGet, address, "")
	require.Equal(t, "/login", path, "a browser without a token is asked for one")
	require.Equal(t, http.StatusOK, code)
	code, path, body := ask(&browser, http.MethodPost, address+"/login", url.Values{"secret": {secret}, "to": {"/"}}.Encode())
	require.Equal(t, http.StatusOK, code, body)
	require.Equal(t, "/", path)
	require.Contains(t, body, "No runs yet")
	code, path, _ = ask(&browser, http.MethodGet, address+"/fleet", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "/fleet", path, "the cookie is kept over TLS")

	code, _, body = ask(http.DefaultClient, http.MethodGet, strings.Replace(address, "https:", "http:", 1), "")
	require.Equal(t, http.StatusBadRequest, code, body)
	require.NotContains(t, body, "No runs yet")
	r.stop()
	require.Zero(t, <-r.code, r.log.String())
}

func TestAPageForOthersNeedsTokensAndTLS(t *testing.T) {
	t.Parallel()
	_, flags := state(t)
	tokens := access.File(filepath.Join(t.TempDir(), "tokens.json"))
	_, err := tokens.Create("ada", []access.Right{access.Read}, time.Now(), time.Time{})
	require.NoError(t, err)
	for want, args := range map[string][]string{
		"--tokens is needed":              {"--listen", "0.0.0.0:0"},
		"or --insecure":                   {"--listen", "0.0.0.0:0", "--tokens", string(tokens)},
		"want host:port":                  {"--listen", "8235"},
		"give --tls-key too, or neither":  {"--tls-cert", "x"},
		"everyone who reaches the proxy":  {"--behind-proxy"},
		"make one with `fulgurite token ": {"--tokens", string(tokens) + "x"},
	} {
		r := begin(t, append(append([]string{"page"}, args...), flags...)...)
		require.Equal(t, workers.ExitFailed, <-r.code)
		require.Contains(t, r.log.String(), want)
	}
}
