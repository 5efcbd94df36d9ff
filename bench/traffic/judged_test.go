package main

import (
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/store"
)

func TestTheAccountOfClientsIsComparedWithTheStore(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("a conversation takes seconds")
	}
	ctx, file := t.Context(), filepath.Join(t.TempDir(), "store.db")
	key, err := prepareStore(ctx, file)
	require.NoError(t, err)
	db, err := store.Open(ctx, file, nil)
	require.NoError(t, err)
	server := httptest.NewServer(gateway.New(gateway.Config{
		Journal: db, Conversations: db, Feedback: db, Keys: store.ServingKeys{Store: db}, ServingKey: "of operators",
		Versions: versions{model.RecordAll}, Sampler: sampler{},
	}))
	defer server.Close()
	a := newAccount()
	clients := &judgingClients{load: judgedLoad{arrivals: arrivals{rate: 100, inFours: true}, length: 500 * time.Millisecond, late: 100 * time.Millisecond}, key: key, url: server.URL, recorded: true, account: a, http: server.Client()}
	require.NoError(t, clients.run(ctx))
	require.NoError(t, db.Close())
	require.Empty(t, a.surprises)
	require.Positive(t, a.answers[http.StatusUnauthorized])
	require.Positive(t, a.answers[http.StatusNotFound])
	require.Positive(t, a.answers[http.StatusOK], "feedback that was given twice is known the second time")

	f, err := compare(ctx, file, a)
	require.NoError(t, err)
	require.Equal(t, findings{feedback: len(a.accepted)}, f)
	require.Len(t, a.replies, a.requests)

	a.replies["gone"], a.accepted["gone"] = "?", 1
	for id := range a.replies {
		if id != "gone" {
			delete(a.replies, id)
			break
		}
	}
	for id := range a.accepted {
		if id != "gone" {
			a.accepted[id] += 7
			break
		}
	}
	f, err = compare(ctx, file, a)
	require.NoError(t, err)
	require.Equal(t, []int{1, 0, 1, 2}, []int{f.lost, f.doubled, f.unreceived, f.feedbackLost})
	require.Len(t, f.wrong, 3)
}
