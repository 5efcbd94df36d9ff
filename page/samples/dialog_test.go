package samples_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/page/samples"
	"github.com/fulgurite/fulgurite/record"
)

// said returns the calls of an attempt. Each call repeats the messages so far and adds
// one.
func said(turns ...string) []record.Exchange {
	var out []record.Exchange
	messages := `{"role":"system","content":"be brief"}`
	for seq := 0; 2*seq < len(turns); seq++ {
		messages += fmt.Sprintf(`,{"role":"user","content":%q}`, turns[2*seq])
		reply := fmt.Sprintf(`{"role":"assistant","content":%q}`, turns[2*seq+1])
		out = append(out, record.Exchange{Call: record.Call{Seq: seq, Parent: seq - 1}, Request: json.RawMessage(`{"model":"m","messages":[` + messages + `]}`), Response: json.RawMessage(`{"choices":[{"message":` + reply + `}]}`)})
		messages += "," + reply
	}
	return out
}

func contents(lines []samples.Line) (out []string) {
	for _, l := range lines {
		out = append(out, fmt.Sprint(l.Call, " ", l.Role, " ", l.Content))
	}
	return out
}

func TestADialogHasEachMessageOnce(t *testing.T) {
	t.Parallel()
	calls := said("1+1", "2", "and 2+2", "4")
	require.Equal(t, []string{"0 system be brief", "0 user 1+1", "0 assistant 2", "1 user and 2+2", "1 assistant 4"}, contents(samples.Dialog(calls)))
	calls[0].Request = json.RawMessage(`{`)
	require.Equal(t, []string{"0 assistant 2", "1 system be brief", "1 user 1+1", "1 assistant 2", "1 user and 2+2", "1 assistant 4"}, contents(samples.Dialog(calls)))
	require.Empty(t, samples.Dialog(nil))
}

func TestCommonEndsWhereSamplesDiffer(t *testing.T) {
	t.Parallel()
	a, b, c := samples.Dialog(said("1+1", "2", "sure?", "yes")), samples.Dialog(said("1+1", "2", "sure?", "no")), samples.Dialog(said("1+1", "3"))
	require.Equal(t, 4, samples.Common([][]samples.Line{a, b}))
	require.Equal(t, 2, samples.Common([][]samples.Line{a, b, c}))
	require.Equal(t, 2, samples.Common([][]samples.Line{a, nil, c}), "an attempt without a call is left out")
	require.Equal(t, 5, samples.Common([][]samples.Line{a, a}))
	require.Equal(t, 2, samples.Common([][]samples.Line{a}), "one alone: what came before its first reply")
	require.Zero(t, samples.Common(nil))
}
