package workers_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/internal/trust"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/workers"
	"github.com/fulgurite/fulgurite/workers/fleet"
)

const (
	fleetKey = "0123456789abcdef-of-the-fleet"
	otherKey = "0123456789abcdef-of-another-fleet"
)

// withoutKeys unsets all keys for a test.
func withoutKeys(t *testing.T) {
	t.Helper()
	for _, name := range []string{trust.FleetKey, trust.ToolsKey, trust.ServingKey, trust.MetricsKey} {
		t.Setenv(name, "")
	}
}

// corpus writes a corpus of one paragraph.
func corpus(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "corpus.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(`{"title": "Lightning", "text": "Fulgurite is made by lightning."}`+"\n"), 0o600))
	return path
}

// get asks with headers, and returns the status and the body.
func get(t *testing.T, client *http.Client, url string, headers ...string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	reply, err := client.Do(request)
	require.NoError(t, err)
	text, err := io.ReadAll(reply.Body)
	require.NoError(t, err)
	require.NoError(t, reply.Body.Close())
	return reply.StatusCode, string(text)
}

func TestAnAddressForOtherMachinesNeedsAKey(t *testing.T) {
	withoutKeys(t)
	for variable, args := range map[string][]string{trust.FleetKey: {"sampler"}, trust.ToolsKey: {"tools", "--corpus", corpus(t)}} {
		t.Run(args[0], func(t *testing.T) {
			if args[0] != "tools" {
				database, flags := state(t)
				open(t, database)
				args = append(args, flags...)
			}
			for _, address := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
				r := begin(t, append(args, "--listen", address)...)
				r.log.await(t, "--listen "+address+": other machines can reach it")
				require.Equal(t, workers.ExitFailed, <-r.code)
				require.Contains(t, r.log.String(), "set "+variable)
				require.NotContains(t, r.log.String(), `"msg":"started"`)
			}
			for _, address := range []string{"127.0.0.1:0", "localhost:0"} {
				r := begin(t, append(args, "--listen", address)...)
				r.log.await(t, `"msg":"started"`)
				require.NotContains(t, r.log.String(), "--insecure")
			}
			r := begin(t, append(args, "--listen", "0.0.0.0:0", "--insecure")...)
			r.log.await(t, `"msg":"started"`)
			require.Equal(t, 1, strings.Count(r.log.String(), "--insecure: whoever reaches this process may use it"))
			t.Setenv(variable, fleetKey)
			r = begin(t, append(args, "--listen", "0.0.0.0:0")...)
			r.log.await(t, `"msg":"started"`)
			t.Setenv(variable, "short")
			r = begin(t, append(args, "--listen", "0.0.0.0:0")...)
			r.log.await(t, variable+": the key has 5 characters")
			require.Equal(t, workers.ExitFailed, <-r.code)
		})
	}
}

func TestOnlyTheFleetAsksASampler(t *testing.T) {
	withoutKeys(t)
	t.Setenv(trust.FleetKey, fleetKey)
	database, flags := state(t)
	s := open(t, database)
	cert, key, trusted := certificate(t)
	r := begin(t, append([]string{"sampler", "--listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert}, flags...)...)
	r.log.await(t, `"msg":"started"`)
	require.NotContains(t, r.log.String(), "can't reach itself")
	url := leased(t, s, record.Sampler)
	require.Regexp(t, `^https://127\.0\.0\.1:\d+$`, url)
	accepted := &tls.Config{RootCAs: trusted}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: accepted}}
	defer client.CloseIdleConnections()

	code, _ := get(t, client, url+"/healthz")
	require.Equal(t, http.StatusOK, code)
	for _, host := range []string{"127.0.0.1", "localhost", "0.0.0.0", ""} { // of which the certificate is for two
		address := strings.Replace(url, "127.0.0.1", host, 1) + "/healthz"
		require.Zero(t, workers.Run(t.Context(), []string{"health", "--url", address}, io.Discard), address)
	}
	code, text := get(t, client, url+"/loaded")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, text, trust.FleetKey)
	code, _ = get(t, client, url+"/loaded", "Authorization", "Bearer "+fleetKey)
	require.Equal(t, http.StatusOK, code)

	v := model.VersionID{Run: "demo", Policy: "main", Number: 1}
	ask := func(peers trust.Peers) error {
		all := fleet.NewSamplers(s, peers, zap.NewNop())
		defer all.Close()
		_, _, err := all.Sample(t.Context(), v, model.DecodeRequest{Prompt: []int32{1}, MaxTokens: 1})
		published := all.Publish(t.Context(), v)
		require.Error(t, published)
		return err
	}
	require.ErrorIs(t, ask(trust.Peers{Key: fleetKey, TLS: accepted}), record.ErrNotFound, "it is asked, and has no such version")
	require.ErrorContains(t, ask(trust.Peers{TLS: accepted}), "the request presents no key: send the value that FULGURITE_FLEET_KEY has")
	require.ErrorContains(t, ask(trust.Peers{Key: otherKey, TLS: accepted}), "the request presents another key")
	require.ErrorContains(t, ask(trust.Peers{Key: fleetKey}), "certificate signed by unknown authority")
}

func TestVersionsAreServedToOtherMachinesOnlyWithAKey(t *testing.T) {
	withoutKeys(t)
	database, flags := state(t)
	s := open(t, database)
	gateway := func(args ...string) (r *running, url string) {
		r = begin(t, append(append([]string{"gateway", "--listen", "0.0.0.0:0", "--advertise", "http://127.0.0.1:1"}, args...), flags...)...)
		r.log.await(t, `"msg":"started"`)
		return r, "http://127.0.0.1:" + portOf(t, r)
	}
	r, url := gateway()
	code, text := get(t, http.DefaultClient, url+"/v1/models")
	require.Equal(t, http.StatusForbidden, code)
	require.Contains(t, text, "set FULGURITE_SERVING_KEY")
	require.Contains(t, text, "--listen 0.0.0.0:0")
	require.Contains(t, r.log.String(), "/v1 is closed")
	code, text = get(t, http.DefaultClient, url+"/r/demo/train-1/0/0/1/v1/models", "Authorization", "Bearer x")
	require.Equal(t, http.StatusNotFound, code, "an attempt has its own key, and this one does not exist: %s", text)
	code, _ = get(t, http.DefaultClient, url+"/healthz")
	require.Equal(t, http.StatusOK, code)
	r.stop()
	require.Zero(t, <-r.code)

	r, url = gateway("--insecure")
	code, _ = get(t, http.DefaultClient, url+"/v1/models")
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, r.log.String(), "--insecure: whoever reaches")
	r.stop()
	require.Zero(t, <-r.code)

	const short = "sk-serving"
	t.Setenv(trust.ServingKey, short)
	r, url = gateway()
	code, text = get(t, http.DefaultClient, url+"/v1/models", "Authorization", "Bearer "+short)
	require.Equal(t, http.StatusForbidden, code, "a key of ten letters can be guessed")
	require.Contains(t, text, "FULGURITE_SERVING_KEY: the key has 10 characters")
	require.NotContains(t, r.log.String(), short)
	r.stop()
	require.Zero(t, <-r.code)
	for _, args := range [][]string{{"--insecure"}, {"--listen", "127.0.0.1:0"}} {
		r, url = gateway(args...)
		code, _ = get(t, http.DefaultClient, url+"/v1/models", "Authorization", "Bearer "+short)
		require.Equal(t, http.StatusOK, code, args)
		code, _ = get(t, http.DefaultClient, url+"/v1/models")
		require.Equal(t, http.StatusUnauthorized, code, args)
		r.stop()
		require.Zero(t, <-r.code)
	}

	t.Setenv(trust.ServingKey, otherKey)
	r, url = gateway()
	code, _ = get(t, http.DefaultClient, url+"/v1/models")
	require.Equal(t, http.StatusUnauthorized, code)
	code, _ = get(t, http.DefaultClient, url+"/v1/models", "Authorization", "Bearer "+otherKey)
	require.Equal(t, http.StatusOK, code)
	r.stop()
	require.Zero(t, <-r.code)
	list, err := s.Leases(t.Context(), record.Gateway)
	require.NoError(t, err)
	require.Empty(t, list)
}

// portOf returns the port on which a process listens.
func portOf(t *testing.T, r *running) string {
	t.Helper()
	_, rest, found := strings.Cut(r.log.String(), `"msg":"listening"`)
	require.True(t, found, r.log.String())
	_, rest, _ = strings.Cut(rest, `"url":"`)
	address, _, _ := strings.Cut(rest, `"`)
	return address[strings.LastIndex(address, ":")+1:]
}

func TestMetricsAreShownOverTLSAndMayHaveAKey(t *testing.T) {
	withoutKeys(t)
	t.Setenv(trust.MetricsKey, otherKey)
	database, flags := state(t)
	open(t, database)
	cert, key, trusted := certificate(t)
	r := begin(t, append([]string{"gateway", "--metrics-listen", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key}, flags...)...)
	r.log.await(t, `"msg":"started"`)
	_, rest, _ := strings.Cut(r.log.String(), `"msg":"showing metrics"`)
	_, rest, _ = strings.Cut(rest, `"url":"`)
	url, _, _ := strings.Cut(rest, `"`)
	require.Regexp(t, `^https://127\.0\.0\.1:\d+/metrics$`, url)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer client.CloseIdleConnections()
	code, text := get(t, client, url)
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, text, trust.MetricsKey)
	code, text = get(t, client, url, "Authorization", "Bearer "+otherKey)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, text, "fulgurite_lease_held")
}

func TestMetricsForOtherMachinesWithoutAKeyAreWarnedOf(t *testing.T) {
	withoutKeys(t)
	const warning = "other machines can read the metrics"
	tools := func(address string) string {
		r := begin(t, "tools", "--corpus", corpus(t), "--metrics-listen", address)
		r.log.await(t, `"msg":"started"`)
		return r.log.String()
	}
	require.NotContains(t, tools("127.0.0.1:0"), warning)
	log := tools(":0")
	require.Equal(t, 1, strings.Count(log, warning), log)
	require.Contains(t, log, trust.MetricsKey)
	t.Setenv(trust.MetricsKey, otherKey)
	require.NotContains(t, tools(":0"), warning)
}

func TestACertificateThatCanNotBeServedEndsTheProcess(t *testing.T) {
	t.Parallel()
	database, flags := state(t)
	open(t, database)
	cert, key, _ := certificate(t)
	_, other, _ := certificate(t)
	for want, args := range map[string][]string{
		fmt.Sprintf("--tls-cert %s: give --tls-key too", cert):                       {"--tls-cert", cert},
		fmt.Sprintf("--tls-cert %s and --tls-key %s: tls: private key", cert, other): {"--tls-cert", cert, "--tls-key", other},
		"--tls-key: stat /nowhere/key.pem: no such file or directory":                {"--tls-cert", cert, "--tls-key", "/nowhere/key.pem"},
		fmt.Sprintf("--tls-ca %s: no certificate in PEM", key):                       {"--tls-ca", key},
	} {
		r := begin(t, append(append([]string{"gateway"}, args...), flags...)...)
		r.log.await(t, want)
		require.Equal(t, workers.ExitFailed, <-r.code)
		require.NotContains(t, r.log.String(), "lease")
	}
}

func TestToolsAreForThoseWithTheKey(t *testing.T) {
	withoutKeys(t)
	t.Setenv(trust.ToolsKey, otherKey)
	r := begin(t, "tools", "--corpus", corpus(t))
	r.log.await(t, `"msg":"started"`)
	_, rest, _ := strings.Cut(r.log.String(), `"search":"`)
	url, _, _ := strings.Cut(rest, `"`)
	code, text := get(t, http.DefaultClient, url+"?query=lightning")
	require.Equal(t, http.StatusUnauthorized, code)
	require.Contains(t, text, trust.ToolsKey)
	code, text = get(t, http.DefaultClient, url+"?query=lightning", "Authorization", "Bearer "+otherKey)
	require.Equal(t, http.StatusOK, code, text)
	require.Contains(t, text, "Fulgurite is made by lightning.")
	code, _ = get(t, http.DefaultClient, strings.TrimSuffix(url, "/search")+"/healthz")
	require.Equal(t, http.StatusOK, code, "so that attempts find out whether it is up")
}
