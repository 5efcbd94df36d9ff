package page

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/page/format"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/trace"
)

const (
	// maxFollowing is how many pages may follow runs at once.
	maxFollowing = 64
	// stateEvery is how long an answer of Temporal is used, and stateTimeout how long one
	// is waited for: it is asked about many workflows at once.
	stateEvery   = time.Second / 2
	stateTimeout = 2 * time.Second
	// quietPolls is the number of polls without news after which a comment is sent to keep
	// the connection open.
	quietPolls = 15
	// renewEvery is the number of milliseconds after which the lists of runs and of
	// processes are loaded again while a reader has them open.
	renewEvery = 2000
)

// stateAnswer is Temporal's answer about a run, or the reason why there is none.
type stateAnswer struct {
	State
	err error
}

// state asks Temporal what a run under way is doing. It returns nil if Temporal can't be
// asked.
func (s *Server) state(ctx context.Context, run record.Run) (*State, string) {
	if s.Live == nil || run.Status != record.Running {
		return nil, ""
	}
	answer, err := s.states.Of(ctx, moment(run.Name), func(ctx context.Context) (stateAnswer, error) {
		ctx, cancel := context.WithTimeout(ctx, stateTimeout)
		defer cancel()
		state, err := s.Live.State(ctx, run.Name)
		return stateAnswer{state, err}, nil // an error is an answer, too, until the next time
	})
	if err == nil {
		err = answer.err
	}
	if err != nil {
		return nil, format.Clip(err.Error(), format.MaxOfMessage).Text
	}
	return &answer.State, ""
}

// liveRuns corrects the status of runs from Temporal, if Temporal answers in time.
func (s *Server) liveRuns(ctx context.Context, runs []record.Run) ([]record.Run, error) {
	ctx, cancel := context.WithTimeout(ctx, stateTimeout)
	defer cancel()
	corrected, err := s.Live.Runs(ctx, runs)
	if len(corrected) != len(runs) {
		return runs, err
	}
	return corrected, err
}

// liveRun does what liveRuns does, for one run. Its answer is shared by all who ask
// within the same moment.
func (s *Server) liveRun(ctx context.Context, run record.Run) (record.Run, error) {
	key := fmt.Sprintf("%s %s %s", moment(run.Name), run.Status, run.Finished)
	return s.lives.Of(ctx, key, func(ctx context.Context) (record.Run, error) {
		return s.liveRunNow(ctx, run), nil
	})
}

// liveRunNow corrects the status of a run. If Temporal does not answer, the status is the
// recorded one.
func (s *Server) liveRunNow(ctx context.Context, run record.Run) record.Run {
	runs, _ := s.liveRuns(ctx, []record.Run{run})
	return runs[0]
}

// moment returns the key of a question to Temporal about a run. The key changes after
// stateEvery.
func moment(run string) string {
	return run + " " + strconv.FormatInt(time.Now().UnixNano()/int64(stateEvery), 10)
}

// live sends an event whenever a run has something new to show, until it ends, the
// reader leaves or may not read any more.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	select {
	case s.following <- struct{}{}:
		defer func() { <-s.following }()
	default:
		http.Error(w, "too many pages follow runs: close some", http.StatusServiceUnavailable)
		return
	}
	if !s.begin() {
		http.Error(w, "the page is being closed", http.StatusServiceUnavailable)
		return
	}
	defer s.work.Done()
	last, err := s.progress(r)
	if errors.Is(err, trace.ErrNotFound) {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	c := http.NewResponseController(w)
	send := func(text string) bool {
		_, err := fmt.Fprint(w, text)
		return err == nil && c.Flush() == nil
	}
	if !send("retry: 3000\n\nevent: begin\ndata: " + last + "\n\n") {
		return
	}
	tick := time.NewTicker(s.Poll)
	defer tick.Stop()
	for quiet := 0; ; quiet++ {
		select {
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		now, err := s.progress(r)
		news := ": still here\n\n"
		switch {
		case err == nil && now != last:
			last, news = now, "event: change\ndata: "+now+"\n\n"
		case quiet%quietPolls != quietPolls-1: // the store may be back at the next look
			continue
		}
		if _, err := s.Guard.Who(r); err != nil { // the token was revoked or has expired
			return
		}
		if !send(news) {
			return
		}
	}
}

// progress describes how far a run has come, as a text that changes whenever there is
// something new to show. Its cost does not depend on the length of the run.
func (s *Server) progress(r *http.Request) (string, error) {
	// All readers who follow the same run share one look.
	key := fmt.Sprintf("%s %d", r.PathValue("run"), s.now())
	return s.looks.Of(r.Context(), key, func(ctx context.Context) (string, error) { return s.look(ctx, r) })
}

func (s *Server) look(ctx context.Context, r *http.Request) (string, error) {
	run, err := s.find(r.WithContext(ctx))
	if err != nil {
		return "", err
	}
	step, err := s.lastStep(ctx, run.Name)
	if err != nil {
		return "", err
	}
	move, err := s.Records.Promoted(ctx, run.Name, model.DefaultPolicy)
	if err != nil && !errors.Is(err, trace.ErrNotFound) {
		return "", err
	}
	text := fmt.Sprintf("%s %d %q", run.Status, step, move.DecisionID)
	if state, _ := s.state(ctx, run); state != nil {
		text += fmt.Sprintf(" %s %s %d %d %v %d %d", state.Phase, format.Clean(state.Subject), state.Done, state.Total, state.Paused, state.Pending, len(state.Waits))
	}
	return format.FirstLine(text), nil
}

// lastStep returns the number of the newest finished step, or 0 if there is none.
func (s *Server) lastStep(ctx context.Context, run string) (int, error) {
	step, err := s.Records.LastStep(ctx, run, model.DefaultPolicy)
	if errors.Is(err, trace.ErrNotFound) {
		return 0, nil
	}
	return step.Step, err
}
