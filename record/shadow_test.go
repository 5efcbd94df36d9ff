package record_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/record"
)

func TestAShadowReplyThatCannotBeRecordedNamesTheField(t *testing.T) {
	t.Parallel()
	good := record.ShadowReply{Run: "demo", Policy: "main", Candidate: 1, CallID: "chatcmpl-0", Finish: "stop"}
	require.NoError(t, good.Check())
	for want, change := range map[string]func(*record.ShadowReply){
		"run: missing":     func(r *record.ShadowReply) { r.Run = "" },
		"policy: missing":  func(r *record.ShadowReply) { r.Policy = "" },
		"candidate: -1":    func(r *record.ShadowReply) { r.Candidate = -1 },
		"call_id: missing": func(r *record.ShadowReply) { r.CallID = "" },
		`finish: "", and`:  func(r *record.ShadowReply) { r.Finish = "" },
		`error: "away"`:    func(r *record.ShadowReply) { r.Error = "away" },
	} {
		r := good
		change(&r)
		require.ErrorContains(t, r.Check(), want)
	}
}
