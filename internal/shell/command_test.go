package shell_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/internal/shell"
)

func TestCommandsFindTheirPlace(t *testing.T) {
	t.Parallel()
	place := shell.Place{Dir: "/my state"}
	fleet := shell.Place{Dir: "/my state", Store: "/a/b.db", Blobs: "/b"}
	for want, got := range map[string]string{
		"fulgurite status run":                                                             shell.Command("status", "run"),
		"fulgurite runs":                                                                   shell.Command("runs"),
		"fulgurite status --dir '/my state' run":                                           place.Command("status", "run"),
		"fulgurite chat --dir '/my state' run@promoted 'it'\\''s?'":                        place.Command("chat", "run@promoted", "it's?"),
		"fulgurite plan 'my spec.yaml'":                                                    place.Command("plan", "my spec.yaml"),
		"fulgurite retry --dir '/my state' --store /a/b.db --blobs /b run":                 fleet.Command("retry", "run"),
		"fulgurite train --dir '/my state' spec.yaml":                                      fleet.Command("train", "spec.yaml"),
		"see `fulgurite versions --dir '/my state' run`, or `fulgurite plan x.yaml`":       place.Complete("see `fulgurite versions run`, or `fulgurite plan x.yaml`"),
		"`fulgurite calls --dir DIR A` and `fulgurite dev --dir '/my state'`":              place.Complete("`fulgurite calls --dir DIR A` and `fulgurite dev`"),
		"`fulgurite-worker migrate` stays, and `fulgurite dev --dir '/my state'` not":      place.Complete("`fulgurite-worker migrate` stays, and `fulgurite dev` not"),
		"`fulgurite-worker migrate --store /a/b.db --blobs /b`, `fulgurite-worker health`": fleet.Complete("`fulgurite-worker migrate`, `fulgurite-worker health`"),
		"fulgurite-worker migrate --store /a/b.db --blobs /b":                              fleet.WorkerCommand("migrate"),
		"see `fulgurite versions run`":                                                     shell.Place{}.Complete("see `fulgurite versions run`"),
	} {
		require.Equal(t, want, got)
	}
}
