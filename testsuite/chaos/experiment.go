package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"go.temporal.io/api/enums/v1"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/protobuf/proto"

	"github.com/fulgurite/fulgurite/spec"
	"github.com/fulgurite/fulgurite/testsuite/chaos/checker"
)

const (
	// fewestExperiments is how many experiments end at least in a run that has some.
	fewestExperiments = 2
	// maxForgotten is how many conversations the user has who is forgotten. More would be so
	// large a part of those of an experiment that it could not be decided soon.
	maxForgotten = 4
	// learnedWithin is how long a step has for learning from the conversations of the user who
	// is forgotten, until there is another one.
	learnedWithin = 30 * time.Second
	// killedRemovals is how many tries to forget a user are killed on purpose.
	killedRemovals = 2
)

// Texts that must not be on record anywhere at the end: what the redactor takes out, what the
// user who is forgotten says, and the names of all users.
const (
	secretWord    = "acct-"
	forgottenWord = "zebra-"
	userDomain    = "@example.org"
	forgottenUser = "gone" + userDomain
)

// plantedTexts returns what is looked for at the end of a run.
func plantedTexts() []string { return []string{secretWord, forgottenWord, userDomain} }

// secretPattern matches what the redactor takes out.
var secretPattern = regexp.MustCompile(regexp.QuoteMeta(secretWord) + `[0-9-]+`)

// redactorCommand is the argument that makes this program a redactor.
const redactorCommand = "redactor"

// redact is a redactor: it takes secrets out of texts, one a line.
func redact(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<20)
	encoder := json.NewEncoder(out)
	for lines.Scan() {
		var line struct {
			Text string `json:"text"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err != nil {
			return fmt.Errorf("read text: %w", err)
		}
		line.Text = secretPattern.ReplaceAllString(line.Text, "[number]")
		if err := encoder.Encode(line); err != nil {
			return fmt.Errorf("write text: %w", err)
		}
	}
	return lines.Err()
}

// graderCommand is the argument that makes this program a grader.
const graderCommand = "grader"

// grade is a grader that gives the more the later it is asked, in seconds since a time in
// nanoseconds. So each version passes the gate, and users decide alone.
func grade(args []string, out io.Writer) error {
	if len(args) != 1 {
		return errors.New("say since when")
	}
	since, err := strconv.ParseInt(args[0], 10, 64)
	if err != nil {
		return fmt.Errorf("read time: %w", err)
	}
	_, err = fmt.Fprintln(out, time.Since(time.Unix(0, since)).Seconds())
	return err
}

// withExperiments adds experiments and a redactor to the spec of a run that learns from
// conversations. Versions with odd numbers are judged good and others bad, so that some
// candidates are promoted, some are withdrawn, and others are given up at the limit.
func withExperiments(s spec.Spec) (spec.Spec, error) {
	self, err := os.Executable()
	if err != nil {
		return s, fmt.Errorf("find the redactor: %w", err)
	}
	s.Grader = spec.Grader{Type: spec.GraderCommand, Command: []string{self, graderCommand, strconv.FormatInt(time.Now().UnixNano(), 10)}}
	s.Traffic.Redactor = &spec.Redactor{Command: []string{self, redactorCommand}}
	s.Traffic.Train.Experiment = &spec.TrafficExperiment{Share: 0.5, MinConversations: 4, MaxConversations: 120}
	return s.WithDefaults(), nil
}

// plant decides what a request says that must not be on record at the end.
func (c *clients) plant(d *dialog, r *checker.ServedRequest, random *rand.Rand) {
	switch {
	case d.user == forgottenUser:
		r.Planted = fmt.Sprintf("%s%d-%d", forgottenWord, d.number, r.Turn)
	case c.experiment && random.IntN(6) == 0:
		r.Planted, d.redacted = secret(d.number, r.Turn), true
	}
	r.Redacted = d.redacted
}

// secret returns a text that the redactor takes out.
func secret(dialog, turn int) string { return fmt.Sprintf("%s%d-%d", secretWord, dialog, turn) }

// speak reports whether the user who is forgotten may still begin to say something: a
// conversation, of which there are few, or else feedback on another's. If so, end has to be
// called when it is said.
func (c *clients) speak(conversation bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silenced || conversation && c.begun == maxForgotten+c.more {
		return false
	}
	if conversation {
		c.begun++
	}
	c.open++
	return true
}

// allowMore lets the user who is forgotten have another conversation, because no step learned
// from those before.
func (c *clients) allowMore() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.more++
}

// hold counts something more that the user says who has begun to speak.
func (c *clients) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open++
}

func (c *clients) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open--
}

// silence keeps the user who is forgotten from saying more than what has begun.
func (c *clients) silence() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.silenced = true
}

// silent reports whether the user who is forgotten has said everything.
func (c *clients) silent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.silenced && c.open == 0
}

// repliesTo returns the ids of the replies that came to a user.
func (c *clients) repliesTo(user string) (ids []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.User == user && r.Reply.ID != "" {
			ids = append(ids, r.Reply.ID)
		}
	}
	return ids
}

// taste returns whether people like a version: 1, or -1 if they don't.
func taste(version int) float64 {
	if version%2 == 1 {
		return 1
	}
	return -1
}

// forget has a user of a run forgotten while the others go on talking: once a step has learned
// from the user, and the user says nothing more. The first tries are killed on purpose, and
// others fail because of the processes that they need.
func (s *suite) forget(ctx context.Context, name string, all *clients) (*checker.ForgottenUser, error) {
	gone := &checker.ForgottenUser{Name: forgottenUser}
	asked := time.Now()
	waitLearned := func(ctx context.Context) (bool, error) {
		var learned bool
		var err error
		gone.Conversations, learned, err = s.db.ConversationsOf(ctx, name, all.repliesTo(forgottenUser))
		if err == nil && !learned && time.Since(asked) > learnedWithin {
			all.allowMore()
			asked = time.Now()
		}
		return learned, err
	}
	if err := s.poll(ctx, waitLearned); err != nil {
		return nil, err
	}
	all.silence()
	if err := s.poll(ctx, func(context.Context) (bool, error) { return all.silent(), nil }); err != nil {
		return nil, err
	}
	if err := s.poll(ctx, func(ctx context.Context) (bool, error) { // all replies have come by now
		_, err := waitLearned(ctx)
		return err == nil, err
	}); err != nil {
		return nil, err
	}
	before, random := s.injected.total, rand.New(rand.NewPCG(s.seed, 0x666f72676574))
	for try := 0; ; try++ {
		limit := time.Minute
		if try < killedRemovals {
			limit = 200*time.Millisecond + time.Duration(random.Int64N(int64(800*time.Millisecond)))
		}
		said, err := s.runForget(ctx, name, limit)
		// A try that was killed may have removed everything.
		if err == nil || try > 0 && bytes.Contains(said, []byte("has nothing of this user")) {
			s.logf("the user is forgotten with try %d, and %d kills meanwhile", try+1, s.injected.total-before)
			return gone, nil
		}
		s.logf("try %d to forget the user failed: %v: %.200s", try+1, err, bytes.TrimSpace(said))
		if err := pause(ctx, 500*time.Millisecond); err != nil {
			return nil, fmt.Errorf("forget a user of run %s: %w (%s)", name, err, said)
		}
	}
}

// runForget runs the command that forgets the user, and kills it after a time. It returns what
// the command printed.
func (s *suite) runForget(ctx context.Context, name string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	command := exec.CommandContext(ctx, filepath.Join(s.bin, "fulgurite"),
		"forget", "--user", forgottenUser, "--in", name, "--yes", "--reason", "asked to", "--store", s.fleet.Store, "--blobs", s.fleet.Blobs)
	command.Env = append(os.Environ(), "TEMPORAL_ADDRESS="+s.fleet.Temporal)
	return command.CombinedOutput()
}

// poll asks again and again until the answer is yes. Errors count as no, because processes come
// back.
func (s *suite) poll(ctx context.Context, ask func(context.Context) (bool, error)) error {
	for {
		short, cancel := context.WithTimeout(ctx, 5*time.Second)
		yes, err := ask(short)
		cancel()
		if yes && err == nil {
			return nil
		}
		if stopped := pause(ctx, pollEvery); stopped != nil {
			return errors.Join(stopped, err)
		}
	}
}

// compared reports whether enough experiments of a run have ended.
func (s *suite) compared(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	ended, decided, err := s.db.Compared(ctx, name)
	return err == nil && ended >= fewestExperiments && decided > 0
}

// leftovers returns the places that have a text which must not be on record: in the tables of
// the store, in blobs and logs, and in the histories of all workflows.
func (s *suite) leftovers(ctx context.Context) (places []string, err error) {
	err = s.retry(ctx, "search the store", func(ctx context.Context) (err error) {
		places, err = s.db.TablesWith(ctx, plantedTexts())
		return err
	})
	if err != nil {
		return nil, err
	}
	files, err := checker.FilesWith(plantedTexts(), s.fleet.Blobs, filepath.Join(s.dir, "logs"))
	if err != nil {
		return nil, err
	}
	places = append(places, files...)
	var executions []*workflowservice.ListWorkflowExecutionsResponse
	err = s.retry(ctx, "list workflows", func(ctx context.Context) error {
		executions = nil
		request := &workflowservice.ListWorkflowExecutionsRequest{PageSize: 1000}
		for {
			page, err := s.temporal.ListWorkflow(ctx, request)
			if err != nil {
				return err
			}
			executions = append(executions, page)
			if request.NextPageToken = page.NextPageToken; len(page.NextPageToken) == 0 {
				return nil
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for _, page := range executions {
		for _, one := range page.Executions {
			var has bool
			err := s.retry(ctx, "search history "+one.Execution.WorkflowId, func(ctx context.Context) (err error) {
				has, err = s.historyHas(ctx, one.Execution.WorkflowId, one.Execution.RunId)
				return err
			})
			if err != nil {
				return nil, err
			}
			if has {
				places = append(places, "history "+one.Execution.WorkflowId)
			}
		}
	}
	return places, nil
}

// historyHas reports whether the history of an execution has one of the planted texts.
func (s *suite) historyHas(ctx context.Context, id, execution string) (bool, error) {
	for it := s.temporal.GetWorkflowHistory(ctx, id, execution, false, enums.HISTORY_EVENT_FILTER_TYPE_ALL_EVENT); it.HasNext(); {
		event, err := it.Next()
		if err != nil {
			return false, err
		}
		data, err := proto.Marshal(event)
		if err != nil {
			return false, fmt.Errorf("encode event: %w", err)
		}
		if checker.HasOne(string(data), plantedTexts()) {
			return true, nil
		}
	}
	return false, nil
}
