package trust_test

import (
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/internal/trust"
)

// serve serves over TLS and returns a function that connects anew and returns the serial
// number of the certificate that is presented.
func serve(t *testing.T, c *trust.Certificate, trusted *tls.Config) func() (int64, error) {
	t.Helper()
	address := listen(t, c)
	return func() (int64, error) {
		connection, err := tls.Dial("tcp", address, trusted)
		if err != nil {
			return 0, err
		}
		defer func() { _ = connection.Close() }()
		return connection.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
	}
}

// listen serves "x" over TLS, and returns host:port.
func listen(t *testing.T, c *trust.Certificate) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{
		Handler:   http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x") }),
		TLSConfig: c.Config(), ErrorLog: zap.NewStdLog(zap.NewNop()), ReadHeaderTimeout: time.Minute,
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.ServeTLS(listener, "", "")
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-ended
	})
	return listener.Addr().String()
}

func authorities(t *testing.T, pairs ...certtest.Pair) *tls.Config {
	t.Helper()
	var all []byte
	for _, p := range pairs {
		all = append(all, p.Cert...)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, all, 0o600))
	trusted, err := trust.Authorities(file)
	require.NoError(t, err)
	return trusted
}

func TestARenewedCertificateIsServedWithoutARestart(t *testing.T) {
	t.Parallel()
	first, second := certtest.Issue(t, 1, -time.Hour, time.Hour), certtest.Issue(t, 2, -time.Hour, time.Hour)
	files := first.Write(t, t.TempDir())
	core, logged := observer.New(zap.InfoLevel)
	c, err := files.Open(zap.New(core))
	require.NoError(t, err)
	serial := serve(t, c, authorities(t, first, second))
	requireSerial := func(want int64) {
		t.Helper()
		got, err := serial()
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	requireSerial(1)
	certtest.Replace(t, files.Cert, second.Cert)
	requireSerial(1) // its key is still the one before
	require.NotZero(t, logged.FilterMessageSnippet("can't be used").Len())
	certtest.Replace(t, files.Key, second.Key)
	requireSerial(2)
	require.NoError(t, os.Remove(files.Key))
	requireSerial(2)
	first.Write(t, filepath.Dir(files.Cert))
	requireSerial(1)
}

func TestAnExpiredCertificateDoesNotReplaceTheOneBefore(t *testing.T) {
	t.Parallel()
	first := certtest.Issue(t, 1, -time.Hour, time.Hour)
	files := first.Write(t, t.TempDir())
	c, err := files.Open(zap.NewNop())
	require.NoError(t, err)
	serial := serve(t, c, authorities(t, first))
	certtest.Issue(t, 2, -2*time.Hour, -time.Hour).Write(t, filepath.Dir(files.Cert))
	got, err := serial()
	require.NoError(t, err)
	require.EqualValues(t, 1, got)
}

func TestOnlyNamedAuthoritiesAreAccepted(t *testing.T) {
	t.Parallel()
	ours, other := certtest.Issue(t, 1, -time.Hour, time.Hour), certtest.Issue(t, 2, -time.Hour, time.Hour)
	c, err := ours.Write(t, t.TempDir()).Open(zap.NewNop())
	require.NoError(t, err)
	_, err = serve(t, c, authorities(t, other))()
	require.ErrorContains(t, err, "certificate")
	_, err = serve(t, c, authorities(t, other, ours))()
	require.NoError(t, err)
	none, err := trust.Authorities("")
	require.NoError(t, err)
	require.Nil(t, none)
}

func TestFilesThatCanNotBeUsedAreNamed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	good := certtest.Issue(t, 1, -time.Hour, time.Hour)
	files := good.Write(t, dir)
	past := certtest.Issue(t, 2, -2*time.Hour, -time.Hour).Write(t, t.TempDir())
	future := certtest.Issue(t, 3, time.Hour, 2*time.Hour).Write(t, t.TempDir())
	other := certtest.Issue(t, 4, -time.Hour, time.Hour).Write(t, t.TempDir())
	text := filepath.Join(dir, "notes.txt")
	require.NoError(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	for want, f := range map[string]trust.Files{
		"--tls-cert " + files.Cert + ": give --tls-key too":                              {Cert: files.Cert},
		"--tls-key " + files.Key + ": give --tls-cert too":                               {Key: files.Key},
		"--tls-cert: stat " + dir + "/absent.pem":                                        {Cert: dir + "/absent.pem", Key: files.Key},
		"--tls-key: stat " + dir + "/absent.pem":                                         {Cert: files.Cert, Key: dir + "/absent.pem"},
		"--tls-cert " + text + " and --tls-key " + files.Key:                             {Cert: text, Key: files.Key},
		files.Cert + " and --tls-key " + other.Key + ": tls: private key does not match": {Cert: files.Cert, Key: other.Key},
		"--tls-cert " + past.Cert + ": the certificate expired on 20":                    {Cert: past.Cert, Key: past.Key},
		"--tls-cert " + future.Cert + ": the certificate is valid only from":             {Cert: future.Cert, Key: future.Key},
	} {
		_, err := f.Open(zap.NewNop())
		require.ErrorContains(t, err, want)
	}
	_, err := trust.Authorities(dir + "/absent.pem")
	require.ErrorContains(t, err, "--tls-ca: open "+dir+"/absent.pem")
	_, err = trust.Authorities(text)
	require.ErrorContains(t, err, "--tls-ca "+text+": no certificate in PEM")
	none, err := trust.Files{}.Open(zap.NewNop())
	require.NoError(t, err)
	require.Nil(t, none)
}

const key = "0123456789abcdef0123456789abcdef"

func TestOnlyTheKeyIsAdmitted(t *testing.T) {
	t.Parallel()
	inner := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	ask := func(h http.Handler, path string, header ...string) *httptest.ResponseRecorder {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		h.ServeHTTP(w, r)
		return w
	}
	guarded := trust.RequireKey(key, trust.FleetKey, inner)
	for _, header := range [][]string{{"Authorization", "Bearer " + key}, {"Authorization", "bearer  " + key}, {"X-Api-Key", key}} {
		require.Equal(t, http.StatusNoContent, ask(guarded, "/sample", header...).Code, header)
	}
	for _, header := range [][]string{
		{}, {"Authorization", "Bearer "}, {"Authorization", key}, {"Authorization", "Basic " + key}, {"Authorization", "Bearer " + key[1:]},
		{"Authorization", "Bearer " + key + "0"}, {"X-Api-Key", strings.ToUpper(key)},
	} {
		w := ask(guarded, "/sample", header...)
		require.Equal(t, http.StatusUnauthorized, w.Code, header)
		var reply struct {
			Error struct{ Message, Code string }
		}
		require.NoError(t, json.Unmarshal(w.Body.Bytes(), &reply))
		require.Contains(t, reply.Error.Message, trust.FleetKey)
		require.Equal(t, "invalid_api_key", reply.Error.Code)
		require.NotContains(t, w.Body.String(), key[1:])
	}
	require.Equal(t, http.StatusNoContent, ask(guarded, "/healthz").Code, "whether it lives is no secret")
	require.Equal(t, http.StatusUnauthorized, ask(guarded, "/healthz/../sample").Code)
	require.Equal(t, http.StatusNoContent, ask(trust.RequireKey("", trust.FleetKey, inner), "/sample").Code)
}

func TestAKeyIsReadOrRefusedByName(t *testing.T) {
	for value, want := range map[string]string{"": "", " \n": "", key: key, " " + key + "\n": key} {
		t.Setenv(trust.ToolsKey, value)
		got, err := trust.ReadKey(trust.ToolsKey)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	for value, want := range map[string]string{
		"hunter2": "FULGURITE_TOOLS_KEY: the key has 7 characters", "correct horse battery": "FULGURITE_TOOLS_KEY: a header can't have this key",
		"ключ от всех дверей": "a header can't have this key", "0123456789\n0123456789": "a header can't have this key",
	} {
		t.Setenv(trust.ToolsKey, value)
		_, err := trust.ReadKey(trust.ToolsKey)
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), value)
	}
}

func TestAnsweringGoesOnWhileTheCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	first, second := certtest.Issue(t, 1, -time.Hour, time.Hour), certtest.Issue(t, 2, -time.Hour, time.Hour)
	files := first.Write(t, t.TempDir())
	c, err := files.Open(zap.NewNop())
	require.NoError(t, err)
	address := listen(t, c)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: authorities(t, first, second)}}
	defer client.CloseIdleConnections()
	for i := range 20 {
		[]certtest.Pair{first, second}[i%2].Write(t, filepath.Dir(files.Cert))
		if i%3 == 0 {
			client.CloseIdleConnections()
		}
		reply, err := client.Get("https://" + address)
		require.NoError(t, err)
		text, err := io.ReadAll(reply.Body)
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, "x", string(text))
	}
}
