package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

// recordOf returns an attempt with one call, which was answered with the stream.
func recordOf(attempt, replayedFrom int, response, stream string) attemptRecord {
	x := &exchange{status: 200, stream: true}
	x.reply.WriteString(stream)
	c := record.Exchange{Call: record.Call{ID: "chatcmpl-1", ReplayedFrom: replayedFrom}, Response: json.RawMessage(response)}
	c.Attempt = attempt
	return attemptRecord{exchanges: []*exchange{x}, calls: []record.Exchange{c}}
}

func TestASecondAttemptIsHeldToTheFirst(t *testing.T) {
	t.Parallel()
	first := recordOf(1, 0, `{}`, "data: 1\n\n")
	require.NoError(t, first.checkReplay(recordOf(2, 1, `{}`, ": keepalive\n\ndata: 1\n\n")))
	require.ErrorContains(t, first.checkReplay(recordOf(2, 0, `{}`, "data: 1\n\n")), "call 0 was sampled again")
	require.ErrorContains(t, first.checkReplay(recordOf(2, 1, `[]`, "data: 1\n\n")), "two responses")
	require.ErrorContains(t, first.checkReplay(recordOf(2, 1, `{}`, "data: 2\n\n")), "another reply than the first")
}
