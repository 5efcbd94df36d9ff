package checker_test

import (
	"database/sql"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

// experimentEvidence returns the evidence of a sound run that compares versions in use. Of the
// conversations of trafficEvidence, 0 is with the control of the first experiment and 1 with its
// candidate, which is promoted. Texts of conversation 2 were rewritten, and conversation 3, from
// which step 3 learned, was that of a user who was forgotten.
func experimentEvidence() checker.TrafficEvidence {
	e, start := trafficEvidence(), time.Unix(1000, 0)
	seconds := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
	r := &e.Records
	r.Decisions = []checker.Decision{{Candidate: 2, Verdict: "ended"}, {Candidate: 3, Verdict: "withdrawn"}}
	r.Experiments = []checker.ExperimentRow{
		{ID: 1, Status: "promoted", Begun: seconds(20), Ended: seconds(60), Candidate: checker.Arm{Conversations: 1}, Against: checker.Arm{Conversations: 1}, Until: seconds(40)},
		{ID: 2, Control: 1, Status: "ended", Begun: seconds(80), Ended: seconds(90)},
		{ID: 3, Control: 1, Status: "withdrawn", Begun: seconds(110), Ended: seconds(120)},
	}
	r.Conversations[0].Experiment, r.Conversations[0].Person = 1, "p"
	r.Conversations[1].Experiment, r.Conversations[1].Person, r.Conversations[1].Candidate, r.Conversations[1].Version = 1, "q", true, 1
	for i := range r.Calls {
		r.Calls[i].Prompted = 9
	}
	less := -0.5
	for i := range 4 {
		r.Feedback[i].At, e.Feedback[i].Answered = seconds(30), seconds(31)
		if i < 2 {
			r.Feedback[i].Reward, e.Feedback[i].Reward = &less, less
			continue
		}
		r.Calls[i].Version, r.Calls[i].Weights, e.Generations[i].Version, e.Generations[i].Weights, e.Requests[i].Reply.Version = 1, "sha256:a1", 1, "a1", 1
		for k := range e.Requests[i].Again {
			e.Requests[i].Again[k].Version = 1
		}
	}

	r.Conversations = append(r.Conversations, checker.TrafficConversation{Number: 2, Client: "ada", Redacted: true})
	request := checker.ServedRequest{
		Client: "ada", Dialog: 2, Text: "(2/0)", Planted: "acct-2-0", Redacted: true, Consents: true,
		Reply: checker.ServedReply{ID: "reply-2-0", Content: "yes"}, Again: []checker.ServedReply{{ID: "reply-2-1", Content: "yes"}},
	}
	e.Requests = append(e.Requests, request)
	for i, id := range []string{"reply-2-0", "reply-2-1"} {
		call := checker.ServedCall{ID: id, Key: "(2/0)", Request: "(2/0) [number]", Response: fmt.Sprintf(`{"id":%q,"choices":[{"message":{"content":"yes"}}]}`, id)}
		call.Call = checker.Call{RolloutAddress: checker.RolloutAddress{Kind: "served", Task: 2}, Attempt: 1, Seq: i, Weights: "sha256:a0", Seed: uint64(3000 + i), Recorded: start}
		r.Calls = append(r.Calls, call)
		e.Generations = append(e.Generations, checker.Generation{ID: id, Run: "run", Seed: call.Seed, Tokens: []int32{7}, Weights: "a0", Started: start.Add(-time.Second)})
	}

	e.Forgotten = &checker.ForgottenUser{Name: "gone@example.org", Conversations: []int{3}}
	e.Requests = append(e.Requests, checker.ServedRequest{
		Client: "ada", Dialog: 3, Text: "(3/0)", Planted: "zebra-3-0", User: e.Forgotten.Name, Consents: true, Reply: checker.ServedReply{ID: "reply-3-0", Content: "yes", Version: 1},
	})
	e.Feedback = slices.Insert(e.Feedback, 4, checker.GivenFeedback{Client: "ben", ID: "foreign-3-0", Reply: "reply-3-0", Reward: 1, User: e.Forgotten.Name, Want: http.StatusNotFound, Statuses: []int{http.StatusNotFound}})
	e.Feedback = append(e.Feedback, checker.GivenFeedback{Client: "ada", ID: "on-reply-3-0", Reply: "reply-3-0", Reward: 1, User: e.Forgotten.Name, Statuses: []int{http.StatusCreated}})
	r.Segments = append(r.Segments, checker.Segment{Step: 3, Parent: 1, Feedback: []string{"ada/on-reply-3-0"}, Conversations: []int{3}, Calls: []int{1}, Replies: 1, At: seconds(100)})
	r.Batches[3] = "sha256:b3"
	r.Versions = append(r.Versions, checker.TrafficVersion{Parent: 1, Version: checker.Version{Number: 3, Weights: "sha256:a3", Batch: "sha256:b3"}})
	return e
}

func TestAnExperimentThatIsSoundIsFoundToBe(t *testing.T) {
	t.Parallel()
	f := checker.CheckTraffic(experimentEvidence())
	require.Empty(t, f.Wrong)
	require.Empty(t, f.Repeated)
	require.Equal(t, &checker.TrafficFindings{
		Requests: 8, Replies: 5, Unrecorded: 1, SentAgain: 3, Accepted: 5, Known: 2, Refused: 3, Used: 5, Segments: 3,
		Redacted: 2, Forgotten: 1, InExperiments: 2, Promoted: 1, Withdrawn: 1, Undecided: 1,
	}, f.Traffic)
}

func TestEverythingThatCanBeWrongWithExperimentsIsNoticed(t *testing.T) {
	t.Parallel()
	unnoticed, err := checker.UnnoticedTraffic(experimentEvidence())
	require.NoError(t, err)
	require.Empty(t, unnoticed)
}

// Feedback that a look may have missed, because it came at the same moment, may be counted or not.
// What was accepted before has to be counted, and what came later must not be.
func TestALookCountsWhatWasKnownThen(t *testing.T) {
	t.Parallel()
	at := func(recorded, answered int) []string {
		e := experimentEvidence()
		e.Records.Experiments[0].Against.Conversations = 0
		for i := range 2 {
			e.Records.Feedback[i].At, e.Feedback[i].Answered = time.Unix(1000+int64(recorded), 0), time.Unix(1000+int64(answered), 0)
		}
		e.Records.Experiments[0].Status, e.Records.Decisions = "ended", append(e.Records.Decisions, checker.Decision{Candidate: 1, Verdict: "ended"})
		e.Records.Promotions = e.Records.Promotions[:1]
		var out []string
		for _, w := range checker.CheckTraffic(e).Wrong {
			if strings.HasPrefix(w, "the experiment with version 1 counts") {
				out = append(out, w)
			}
		}
		return out
	}
	require.Empty(t, at(30, 45), "it was accepted after the look began")
	require.Empty(t, at(50, 51), "it came after the look")
	require.Len(t, at(30, 31), 1, "it was accepted before the last feedback that the look saw")
}

func TestTextsAreFoundInTablesAndFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "store.db")
	db, err := sql.Open("sqlite", path)
	require.NoError(t, err)
	for _, query := range []string{
		`CREATE TABLE texts (id INTEGER, text TEXT)`, `CREATE TABLE bytes (id INTEGER, data BLOB)`, `CREATE TABLE others (id INTEGER, text TEXT)`,
		`INSERT INTO texts VALUES (1, 'none'), (2, 'a zebra-7')`, `INSERT INTO bytes VALUES (1, CAST('x acct-1 y' AS BLOB))`, `INSERT INTO others VALUES (1, NULL), (2, 'zebra')`,
	} {
		_, err := db.ExecContext(t.Context(), query)
		require.NoError(t, err)
	}
	require.NoError(t, db.Close())
	d, err := checker.OpenDatabase(path)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	tables, err := d.TablesWith(t.Context(), []string{"zebra-", "acct-"})
	require.NoError(t, err)
	require.Equal(t, []string{"table bytes", "table texts"}, tables)

	require.NoError(t, os.MkdirAll(filepath.Join(dir, "blobs", "ab"), 0o755))
	blob := filepath.Join(dir, "blobs", "ab", "one")
	require.NoError(t, os.WriteFile(blob, []byte("\x00\x01zebra-9\x00"), 0o644))
	require.NoError(t, os.WriteFile(blob+"-other", []byte("zebra"), 0o644))
	files, err := checker.FilesWith([]string{"zebra-"}, filepath.Join(dir, "blobs"))
	require.NoError(t, err)
	require.Equal(t, []string{"file " + blob}, files)
	_, err = checker.FilesWith(nil, filepath.Join(dir, "absent"))
	require.ErrorContains(t, err, "absent")
}
