package wire_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/wire"
)

func TestTheInputOfAResponseIsListedFromItsEnd(t *testing.T) {
	t.Parallel()
	const text = `{"id":"item_1f_0","type":"message","status":"completed","role":"user","content":[{"type":"input_text","text":"hi"}]}`
	for input, want := range map[string]string{
		`"hi"`: `{"object":"list","data":[` + text + `],"first_id":"item_1f_0","last_id":"item_1f_0","has_more":false}`,
		`[{"role":"user","content":"hi"},{"type":"function_call","id":"fc_9","status":"completed","call_id":"1","name":"f","arguments":"{}"},
			{"role":"assistant","content":"so"}]`: `{"object":"list","data":[
			{"id":"item_1f_2","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"so"}]},
			{"type":"function_call","id":"fc_9","status":"completed","call_id":"1","name":"f","arguments":"{}"},` + text + `],
			"first_id":"item_1f_2","last_id":"item_1f_0","has_more":false}`,
	} {
		r := decode(t, wire.Responses, `{"input":`+input+`}`)
		require.JSONEq(t, want, string(r.InputItems("1f")))
	}
	require.JSONEq(t, `{"id":"resp_1f","object":"response","deleted":true}`, string(wire.Deleted("resp_1f")))
}
