package upstream_test

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/sampler/upstream"
	"github.com/fulgurite/fulgurite/model/tokenizer"
)

// speaks makes the server answer with these tokens, two in an event, as long as the
// client listens.
func (s *server) speaks(tokens []int32) {
	s.turn = func(w http.ResponseWriter, r *http.Request, body map[string]any) bool {
		w.Header().Set("Content-Type", "text/event-stream")
		vllm := r.URL.Path == "/v1/completions"
		if body["stream"] != true {
			http.Error(w, "want a stream", http.StatusBadRequest)
			return true
		}
		var pairs []any
		for from := 0; from < len(tokens) && r.Context().Err() == nil; from += 2 {
			part := tokens[from:min(from+2, len(tokens))]
			var finish, reason any
			if from+2 >= len(tokens) {
				finish, reason = "stop", map[string]any{"type": "stop"}
			}
			logprobs := []any{}
			for _, id := range part {
				logprobs, pairs = append(logprobs, -1), append(pairs, []any{-1, id, nil})
			}
			var event any = map[string]any{"meta_info": map[string]any{"finish_reason": reason, "output_token_logprobs": pairs, "weight_version": s.version}}
			if vllm {
				event = map[string]any{"choices": []any{map[string]any{"token_ids": part, "logprobs": map[string]any{"token_logprobs": logprobs}, "finish_reason": finish}}}
			}
			fmt.Fprintf(w, "data: %s\n\n", encoded(event))
			w.(http.Flusher).Flush()
		}
		fmt.Fprint(w, "data: [DONE]\n\n")
		return true
	}
}

// A stop text ends what the model says, not a call in which it occurs, as in the built-in
// sampler.
func TestStopTextsEndTheContentAloneAtEachServer(t *testing.T) {
	t.Parallel()
	c := dialog.Compact()
	call := append(append([]int32{tokenizer.ToolCall}, c.Encode("1\n+1")...), tokenizer.End)
	said := append(c.Encode("a line\nand more"), tokenizer.End)
	for kind, versions := range map[string]string{upstream.VLLM: upstream.None, upstream.SGLang: upstream.None} {
		for _, stream := range []bool{false, true} {
			for _, one := range []struct{ says, want []int32 }{{call, call}, {said, c.Encode("a line\n")}} {
				at := newServer(t)
				at.speaks(one.says)
				s := connect(t, kind, versions, at)
				r := request()
				r.MaxTokens, r.Stop = 100, []int32{tokenizer.End}
				r.Form = &model.Form{Codec: dialog.CompactName, Stop: []string{"\n"}, Tools: []model.FormTool{{Name: "calculator"}}}
				var emitted []int32
				if stream {
					r.Emit = func(token int32, _ float32) { emitted = append(emitted, token) }
				}
				got, _, err := s.Sample(t.Context(), version, r)
				require.NoError(t, err, kind)
				require.Equal(t, one.want, got.Tokens, kind)
				require.Len(t, got.Logprobs, len(one.want))
				require.Equal(t, "stop", got.Finish)
				if stream {
					require.Equal(t, one.want, emitted)
				}
				for _, asked := range append(at.asked("/completions"), at.asked("/generate")...) {
					require.NotContains(t, encoded(asked), `"stop":`)
				}
			}
		}
	}
}

func TestStopTextsThatCannotBeFoundAreRefused(t *testing.T) {
	t.Parallel()
	for kind := range kinds() {
		s := connect(t, kind, upstream.None, newServer(t))
		r := request()
		r.Form = &model.Form{Codec: "of another vocabulary", Stop: []string{"\n"}}
		_, _, err := s.Sample(t.Context(), version, r)
		require.ErrorIs(t, err, model.ErrForm)
		require.ErrorContains(t, err, "of another vocabulary")
	}
}
