package attribution_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/credit/attribution"
	"github.com/fulgurite/fulgurite/dialog"
)

func TestRepliesOfEveryAPIAreRead(t *testing.T) {
	t.Parallel()
	call := []dialog.ToolCall{{ID: "call_1", Function: dialog.Function{Name: "add", Arguments: `{"a":1}`}}}
	want := []dialog.Message{{Role: dialog.Assistant, Content: "so", Reasoning: "hm", ToolCalls: call}}
	typed := []dialog.ToolCall{{ID: "call_1", Type: "function", Function: call[0].Function}}
	for name, c := range map[string]struct {
		response string
		want     []dialog.Message
	}{
		"chat": {`{"choices":[{"message":{"role":"assistant","content":"so","reasoning_content":"hm","tool_calls":[{"id":"call_1","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]}}]}`,
			[]dialog.Message{{Role: dialog.Assistant, Content: "so", Reasoning: "hm", ToolCalls: typed}}},
		"two choices": {`{"choices":[{"message":{"content":"a"}},{"message":{"content":null}}]}`,
			[]dialog.Message{{Role: dialog.Assistant, Content: "a"}, {Role: dialog.Assistant}}},
		"completions": {`{"choices":[{"text":"so"}]}`, []dialog.Message{{Role: dialog.Assistant, Content: "so"}}},
		"responses": {`{"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"hm"}]},{"type":"message","content":[{"type":"output_text","text":"so"}]},
			{"type":"function_call","call_id":"call_1","name":"add","arguments":"{\"a\":1}"}]}`, want},
		"messages": {`{"content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"so"},{"type":"tool_use","id":"call_1","name":"add","input":{"a":1}}]}`, want},
		"nothing":  {`{`, nil},
	} {
		require.Empty(t, cmp.Diff(c.want, attribution.Replies([]byte(c.response))), name)
	}
}
