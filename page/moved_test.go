package page_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
	"github.com/fulgurite/fulgurite/spec"
)

// A form acts on the state that it shows: if the promotion rule or another tab moves the
// pointer meanwhile, the form is shown again, and nothing is done.
func TestAFormActsOnlyOnTheStateThatItShowed(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"promote", "pin", "rollback"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, "plain")
			g.actsOnWhatItShowed(action, "demo", "main", 2, 0)
		})
		t.Run(action+" of a search", func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, "plain")
			c := small("found", spec.AlgorithmGEPA)
			c.optimizer.Budget = spec.OptimizerBudget{Minibatch: 12, Validation: 24, Reflections: 2}
			g.searched(c)
			g.actsOnWhatItShowed(action, "found", record.PromptsPolicy, 0, 1)
		})
	}
}

// actsOnWhatItShowed lets the promotion rule promote a late version after a form was shown,
// and then a person another one.
func (g *guarded) actsOnWhatItShowed(action, run, policy string, late, other int) {
	t, ctx := g.t, g.t.Context()
	v := g.visitor()
	v.logIn(g.token("ada", access.Operate, time.Time{}))
	path := "/runs/" + run + "/actions/" + action
	_, body, _ := v.send(http.MethodGet, path, nil)
	if action == "rollback" {
		require.Contains(t, body, "Version 0 is promoted again, unless you name another.")
	}
	form := hidden(body)
	form.Set("reason", "as it was shown")
	if action != "rollback" {
		form.Set("version", strconv.Itoa(other))
	}
	before, err := g.store.Promotions(ctx, run, policy)
	require.NoError(t, err)
	last := before[len(before)-1]
	require.NoError(t, g.store.Promote(ctx, record.Promotion{
		Run: run, Policy: policy, DecisionID: "gate-late", Version: late, Previous: last.Version,
	}))

	code, body, _ := v.send(http.MethodPost, path, form)
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, body, fmt.Sprintf("version %d is promoted now. Nothing was done.", late))
	require.Contains(t, body, `value="as it was shown"`, "what was typed is kept")
	after, err := g.store.Promotions(ctx, run, policy)
	require.NoError(t, err)
	require.Len(t, after, len(before)+1)

	_, offered, _ := v.send(http.MethodGet, fmt.Sprintf("/runs/%s/versions/%d", run, other), nil)
	require.Contains(t, links(t, offered), fmt.Sprintf("%s?version=%d", path, other))
	again := hidden(body)
	require.NotEqual(t, form["id"], again["id"])
	again.Set("reason", form.Get("reason"))
	again.Set("version", strconv.Itoa(other))
	for range 2 { // sent twice it is done once, although it has moved the pointer itself
		code, body, to := v.send(http.MethodPost, path, again)
		require.Equal(t, http.StatusSeeOther, code, body)
		_, body, _ = v.send(http.MethodGet, to, nil)
		require.Contains(t, body, fmt.Sprintf("version %d → %d", late, other))
	}
}
