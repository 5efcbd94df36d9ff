package page_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/access"
	"github.com/fulgurite/fulgurite/record"
)

// A form acts on the state that it shows: if the promotion rule or another tab moves the
// pointer meanwhile, the form is shown again, and nothing is done.
func TestAFormActsOnlyOnTheStateThatItShowed(t *testing.T) {
	t.Parallel()
	for _, action := range []string{"promote", "pin", "rollback"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			g := newGuarded(t, "plain")
			v := g.visitor()
			v.logIn(g.token("ada", access.Operate, time.Time{}))
			path := "/runs/demo/actions/" + action
			_, body, _ := v.send(http.MethodGet, path, nil)
			form := hidden(body)
			form.Set("reason", "as it was shown")
			if action != "rollback" {
				form.Set("version", "0")
			}
			before, err := g.store.Promotions(t.Context(), "demo", "main")
			require.NoError(t, err)
			last := before[len(before)-1]
			require.NoError(t, g.store.Promote(t.Context(), record.Promotion{
				Run: "demo", Policy: "main", DecisionID: "gate-late", Version: 2, Previous: last.Version,
			}))

			code, body, _ := v.send(http.MethodPost, path, form)
			require.Equal(t, http.StatusConflict, code)
			require.Contains(t, body, "version 2 is promoted now. Nothing was done.")
			require.Contains(t, body, `value="as it was shown"`, "what was typed is kept")
			after, err := g.store.Promotions(t.Context(), "demo", "main")
			require.NoError(t, err)
			require.Len(t, after, len(before)+1)

			again := hidden(body)
			require.NotEqual(t, form["id"], again["id"])
			again.Set("reason", form.Get("reason"))
			again.Set("version", "0")
			for range 2 { // sent twice it is done once, although it has moved the pointer itself
				code, body, to := v.send(http.MethodPost, path, again)
				require.Equal(t, http.StatusSeeOther, code, body)
				_, body, _ = v.send(http.MethodGet, to, nil)
				require.Contains(t, body, "version 2 → 0")
			}
		})
	}
}
