package processes_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/protobuf/proto"
	_ "modernc.org/sqlite"

	"github.com/fulgurite/fulgurite/credit"
	"github.com/fulgurite/fulgurite/examples/calc/calculator"
	"github.com/fulgurite/fulgurite/internal/certtest"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/store"
	"github.com/fulgurite/fulgurite/testsuite/chaos/processes"
	"github.com/fulgurite/fulgurite/testsuite/randomjudge"
	"github.com/fulgurite/fulgurite/workflows"
)

// The secrets that a fleet is started with. No other text contains one of them.
const (
	plantedFleet   = "planted-b1d5e7-fleet-key"
	plantedServing = "planted-c93a20-serving-key"
	plantedMetrics = "planted-0fd3c8-metrics-key"
	plantedStore   = "planted-74e61b-store-password"
	plantedAgent   = "planted-5a8f09-agent-token"
	plantedSearch  = "planted-d2470e-search-key"
	plantedJudge   = "planted-e6b83c-judge-key"
	plantedGrader  = "planted-18c5fa-grader-key"
)

// plainText is a text that has to be found, so that the search is known to find something.
const plainText = "planted-in-plain-text"

func planted() map[string]string {
	return map[string]string{
		"FULGURITE_FLEET_KEY": plantedFleet, "FULGURITE_SERVING_KEY": plantedServing, "FULGURITE_METRICS_KEY": plantedMetrics,
		"AGENT_TOKEN": "Bearer " + plantedAgent, "SEARCH_KEY": plantedSearch, "JUDGE_KEY": plantedJudge, "GRADER_KEY": plantedGrader,
	}
}

// TestNoSecretOfAFleetIsKept trains on a fleet whose processes have secrets in their
// environment and speak TLS, with an agent, a judge and a grader that need secrets. The agent
// and the judge repeat theirs in what they answer and print. Then nothing that the fleet wrote contains one of them.
func TestNoSecretOfAFleetIsKept(t *testing.T) {
	if testing.Short() {
		t.Skip("the processes of the fleet run without the race detector")
	}
	for name, sqlite := range map[string]bool{"postgres": false, "sqlite": true} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
			defer cancel()
			files, trusted := certtest.Files(t)
			environment := []string{
				"FULGURITE_TLS_CERT=" + files.Cert, "FULGURITE_TLS_KEY=" + files.Key, "FULGURITE_TLS_CA=" + files.Cert, "FULGURITE_METRICS_LISTEN=127.0.0.1:0",
				"FULGURITE_LOG_LEVEL=debug",
			}
			for key, value := range planted() {
				environment = append(environment, key+"="+value)
			}
			o := processes.Options{SQLite: sqlite, Environment: environment}
			if !sqlite {
				o.Password = plantedStore
			}
			f := start(t, o)
			c := newQuotingServers(t)
			temporal, err := client.DialContext(ctx, client.Options{HostPort: f.Temporal, Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler))})
			require.NoError(t, err)
			defer temporal.Close()
			for name, s := range map[string]spec.Spec{"by-service": c.service(t), "by-command": c.command(t)} {
				data, err := json.Marshal(s)
				require.NoError(t, err)
				run, err := temporal.ExecuteWorkflow(ctx, client.StartWorkflowOptions{ID: name, TaskQueue: workflows.QueueTraining}, "TrainingWorkflow", workflows.TrainingInput{Spec: data})
				require.NoError(t, err)
				require.NoError(t, run.Get(ctx, nil))
			}
			require.Positive(t, c.answered.Load(), "the service got its token")
			require.Positive(t, c.refused.Load(), "the service quoted the token")
			require.Positive(t, c.judged.Load(), "the judge got its key")
			requireServed(ctx, t, f, trusted)

			secrets := []string{plantedFleet, plantedServing, plantedMetrics, plantedStore, plantedAgent, plantedSearch, plantedJudge, plantedGrader}
			secrets = append(secrets, c.attemptKeys()...)
			found := search{t: t, secrets: secrets}
			found.histories(ctx, temporal)
			found.database(ctx, "store", f.Store)
			if sqlite {
				for _, path := range glob(t, filepath.Join(f.Blobs, "..", "state", "*", "*.db")) {
					found.database(ctx, "Temporal", path)
				}
			} else {
				found.database(ctx, "Temporal", strings.TrimSuffix(f.Store, "/fulgurite")+"/temporal")
			}
			require.NoError(t, f.Close())
			found.files(filepath.Dir(f.Blobs))
			require.Equal(t, map[string]bool{"histories": true, "store": true, "Temporal": true, "files": true}, found.plain, "where a text that is no secret was found")
		})
	}
}

// quotingServers are servers that need secrets, and quote them in their errors.
type quotingServers struct {
	url                       string
	answered, refused, judged atomic.Int64
	judge                     *randomjudge.Judge

	mu   sync.Mutex
	keys map[string]bool
}

func newQuotingServers(t *testing.T) *quotingServers {
	t.Helper()
	c := &quotingServers{judge: randomjudge.New(0), keys: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /agent", c.answer)
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		switch presented := r.Header.Get("Authorization"); {
		case presented != "Bearer "+plantedJudge:
			http.Error(w, "no key", http.StatusUnauthorized)
		case c.judged.Add(1)%4 == 1:
			w.Header().Set("Retry-After", "0")
			http.Error(w, "too much is asked under "+presented, http.StatusInternalServerError)
		default:
			c.judge.ServeHTTP(w, r)
		}
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	c.url = s.URL
	return c
}

// answer is the calculator as a service. It refuses each fourth request and quotes the token.
func (c *quotingServers) answer(w http.ResponseWriter, r *http.Request) {
	var b struct {
		Input   string `json:"input"`
		BaseURL string `json:"base_url"`
		APIKey  string `json:"api_key"`
		Model   string `json:"model"`
	}
	presented := r.Header.Get("Authorization")
	if err := json.NewDecoder(r.Body).Decode(&b); err != nil || presented != "Bearer "+plantedAgent {
		http.Error(w, "no token", http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.keys[b.APIKey] = true
	c.mu.Unlock()
	if c.answered.Add(1)%4 == 1 {
		c.refused.Add(1)
		status := http.StatusServiceUnavailable // a fault, which Temporal keeps
		if c.refused.Load()%2 == 0 {
			status = http.StatusInternalServerError // the agent's failure, which the store keeps
		}
		http.Error(w, plainText+": bad token "+presented, status)
		return
	}
	result, err := calculator.Agent{Client: calculator.Connect(b.BaseURL, b.APIKey), Model: b.Model}.Solve(r.Context(), b.Input)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"result": result})
}

// attemptKeys returns the keys of the attempts that the service was asked for.
func (c *quotingServers) attemptKeys() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.keys {
		all = append(all, key)
	}
	return all
}

func small(t *testing.T) spec.Spec {
	t.Helper()
	var s spec.Spec
	require.NoError(t, json.Unmarshal(smallSpec(t, 1), &s))
	s.Evaluation, s.Promotion, s.Tasks.Gate, s.Tasks.Test = spec.Evaluation{}, spec.Promotion{}, "", ""
	return s
}

// service trains by the service, with the judge.
func (c *quotingServers) service(t *testing.T) spec.Spec {
	s := small(t)
	s.Agent = spec.Agent{Service: &spec.Service{URL: c.url + "/agent", SecretHeaders: map[string]string{"Authorization": "AGENT_TOKEN"}}}
	s.Credit = spec.Credit{Assignment: credit.Judge, Judge: &spec.Judge{URL: c.url + "/v1", Model: "random", Key: "JUDGE_KEY"}}
	return s.WithDefaults()
}

// command trains by a command that prints its secret, and grades by one that has its own but
// not the fleet's.
func (c *quotingServers) command(t *testing.T) spec.Spec {
	s := small(t)
	s.Agent = spec.Agent{
		Command:           []string{"sh", "-c", `echo "` + plainText + ` $KEY" >&2; echo "$KEY"; env >&2; echo "the key is $KEY"`},
		SecretEnvironment: map[string]string{"KEY": "SEARCH_KEY"},
	}
	s.Grader = spec.Grader{Type: "command", Limit: 1, Command: []string{"sh", "-c", `test -n "$GRADER_KEY" && ! env | grep -E 'FLEET_KEY|SERVING_KEY|FULGURITE_STORE' >&2 && echo 1`}}
	s.Training.TasksPerStep, s.Training.SamplesPerTask = 2, 2
	return s.WithDefaults()
}

// requireServed requires that versions are served to those with the key, over TLS.
func requireServed(ctx context.Context, t *testing.T, f *processes.Fleet, trusted *tls.Config) {
	t.Helper()
	s, err := store.Open(ctx, f.Store, nil)
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	for _, role := range []record.Role{record.Gateway, record.Sampler} {
		leases, err := s.Leases(ctx, role)
		require.NoError(t, err)
		require.Len(t, leases, 1)
		require.Regexp(t, "^https://", leases[0].URL)
	}
	attempts, err := s.Attempts(ctx, "by-command", record.Train, 1)
	require.NoError(t, err)
	require.Len(t, attempts, 4)
	for _, a := range attempts {
		require.NotNil(t, a.Reward)
		require.InDelta(t, 1, *a.Reward, 0, "the grader has its own key and not those of the fleet: %s", a.Error)
		require.Equal(t, "the key is [secret]", a.Result)
	}
	leases, err := s.Leases(ctx, record.Gateway)
	require.NoError(t, err)
	gateway := &http.Client{Transport: &http.Transport{TLSClientConfig: trusted}}
	defer gateway.CloseIdleConnections()
	for key, want := range map[string]int{"": http.StatusUnauthorized, plantedServing: http.StatusOK} {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, leases[0].URL+"/v1/models", nil)
		require.NoError(t, err)
		if key != "" {
			request.Header.Set("Authorization", "Bearer "+key)
		}
		reply, err := gateway.Do(request)
		require.NoError(t, err)
		_, _ = io.Copy(io.Discard, reply.Body)
		require.NoError(t, reply.Body.Close())
		require.Equal(t, want, reply.StatusCode)
	}
}

// search looks for secrets in what a fleet keeps.
type search struct {
	t       *testing.T
	secrets []string
	plain   map[string]bool // where plainText, or another text of the runs, was found
}

// look reports each secret in data.
func (s *search) look(place, detail string, data []byte) {
	for i, secret := range s.secrets {
		if bytes.Contains(data, []byte(secret)) {
			name := secret
			if !strings.HasPrefix(secret, "planted-") {
				name = fmt.Sprintf("the key of attempt %d", i)
			}
			at := bytes.Index(data, []byte(secret))
			s.t.Errorf("%s: %s has %s: …%q…", place, detail, name, data[max(0, at-100):min(len(data), at+100)])
		}
	}
	if s.plain == nil {
		s.plain = map[string]bool{}
	}
	for _, text := range []string{plainText, "by-service"} {
		if bytes.Contains(data, []byte(text)) {
			s.plain[place] = true
		}
	}
}

// histories looks into all events of all workflows.
func (s *search) histories(ctx context.Context, c client.Client) {
	events := 0
	for token := []byte(nil); ; {
		list, err := c.ListWorkflow(ctx, &workflowservice.ListWorkflowExecutionsRequest{Namespace: "default", NextPageToken: token})
		require.NoError(s.t, err)
		for _, w := range list.Executions {
			for it := c.GetWorkflowHistory(ctx, w.Execution.WorkflowId, w.Execution.RunId, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
				e, err := it.Next()
				require.NoError(s.t, err)
				data, err := proto.Marshal(e)
				require.NoError(s.t, err)
				s.look("histories", fmt.Sprintf("event %d of %s", e.EventId, w.Execution.WorkflowId), data)
				events++
			}
		}
		if token = list.NextPageToken; len(token) == 0 {
			break
		}
	}
	require.Greater(s.t, events, 100)
}

// database looks into each value of each table.
func (s *search) database(ctx context.Context, place, address string) {
	driver, tables := "sqlite", `SELECT name FROM sqlite_master WHERE type = 'table'`
	if strings.HasPrefix(address, "postgres://") {
		driver, tables = "pgx", `SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'`
	}
	db, err := sql.Open(driver, address)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, db.Close()) }()
	var names []string
	rows, err := db.QueryContext(ctx, tables)
	require.NoError(s.t, err)
	for rows.Next() {
		var name string
		require.NoError(s.t, rows.Scan(&name))
		names = append(names, name)
	}
	require.NoError(s.t, rows.Err())
	require.Greater(s.t, len(names), 5, address)
	for _, name := range names {
		s.table(ctx, db, place, name)
	}
}

func (s *search) table(ctx context.Context, db *sql.DB, place, name string) {
	rows, err := db.QueryContext(ctx, `SELECT * FROM "`+name+`"`)
	require.NoError(s.t, err)
	defer func() { require.NoError(s.t, rows.Close()) }()
	columns, err := rows.Columns()
	require.NoError(s.t, err)
	for rows.Next() {
		values, pointers := make([]any, len(columns)), make([]any, len(columns))
		for i := range values {
			pointers[i] = &values[i]
		}
		require.NoError(s.t, rows.Scan(pointers...))
		for i, v := range values {
			switch v := v.(type) {
			case []byte:
				s.look(place, name+"."+columns[i], v)
			case string:
				s.look(place, name+"."+columns[i], []byte(v))
			}
		}
	}
	require.NoError(s.t, rows.Err())
}

// files looks into all files of a fleet that has ended: logs, blobs, and those of the
// databases.
func (s *search) files(dir string) {
	require.NoError(s.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		s.look("files", path, data)
		return nil
	}))
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	all, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, all, pattern)
	return all
}
