package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/fulgurite/fulgurite/agent/forwarder"
	"github.com/fulgurite/fulgurite/dialog"
	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
)

// promptSet returns the prompt "writer" with a text, and "search" for tools.
func promptSet(t testing.TB, writer string, rules ...prompts.Rule) prompts.Set {
	t.Helper()
	p, err := prompts.New(map[string]prompts.Prompt{"writer": {Text: writer}, "search": {Text: "Finds."}})
	require.NoError(t, err)
	s, err := prompts.NewSet(p, rules)
	require.NoError(t, err)
	return s
}

// prefixed replaces the beginning of a system message.
func prefixed(prefix string) prompts.Rule {
	return prompts.Rule{Prompt: "writer", Match: prompts.Match{Role: prompts.System, Prefix: prefix}}
}

// servingPrompts lets the gateway find sets by their digests.
func servingPrompts(sets ...prompts.Set) func(*gateway.Config) {
	return func(c *gateway.Config) {
		c.Prompts = func(digest string) (prompts.Set, error) {
			for _, s := range sets {
				if s.Digest() == digest {
					return s, nil
				}
			}
			return prompts.Set{}, errors.New("no such blob")
		}
	}
}

// under puts the digest of a set into the terms.
func under(s prompts.Set) func(*record.Attempt) {
	return func(a *record.Attempt) { a.Terms.Prompts = s.Digest() }
}

func TestThePolicyReadsThePromptsAndTheRecordHasWhatTheAgentSent(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"))
	body := request(message("system", "old schema"), message("user", "old {{prompt:writer}}"))
	plain := newTestEnv(t, nil)
	require.Equal(t, http.StatusOK, plain.chat(t, body).status)
	s := newTestEnv(t, under(set), servingPrompts(set))
	require.Equal(t, http.StatusOK, s.chat(t, body).status)
	require.Equal(t, "<system>Be brief. schema<end><user>old {{prompt:writer}}<end><assistant>", text(s.requests()[0].Prompt))
	got, want := s.recorded(t)[0], plain.recorded(t)[0]
	require.Equal(t, body, string(got.Request))
	require.Equal(t, want.Key, got.Key)
	require.Equal(t, want.Seed, got.Seed)
	require.Equal(t, want.ID, got.ID)
	require.NotEqual(t, want.Prompt, got.Prompt)
}

func TestDescriptionsOfToolsAreReplacedForThePolicyAlone(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "x", prompts.Rule{Prompt: "search", Match: prompts.Match{Role: prompts.Tool, Tool: "search", Exact: "Searches."}})
	seen := &toolWatch{Codec: dialog.Compact()}
	s := newTestEnv(t, under(set), servingPrompts(set), func(c *gateway.Config) {
		c.Codecs = func(string) (dialog.Codec, error) { return seen, nil }
	})
	const tools = `"tools":[{"type":"function","function":{"name":"search","description":"Searches.","parameters":{"type":"object"}}}],`
	s.replies = [][]int32{say("1", tokenizer.End)}
	require.Equal(t, http.StatusOK, s.chat(t, `{`+tools+`"messages":[`+message("user", "a")+`]}`).status)
	require.Equal(t, http.StatusOK, s.chat(t, `{`+tools+`"messages":[`+message("user", "a")+`,`+message("assistant", "1")+`,`+message("user", "b")+`]}`).status)
	require.Equal(t, []string{"Finds."}, slices.Compact(slices.Clone(seen.prompted)))
	require.Equal(t, []string{"Finds."}, slices.Compact(slices.Clone(seen.bridged)))
	require.Contains(t, string(s.recorded(t)[1].Request), "Searches.")
	require.Equal(t, []int{-1, 0}, s.parents(t))
}

// toolWatch remembers the descriptions of tools that are rendered.
type toolWatch struct {
	dialog.Codec
	mu                sync.Mutex // a gateway looks for drift while it samples
	prompted, bridged []string
}

func (w *toolWatch) Prompt(messages []dialog.Message, tools []dialog.Tool) ([]int32, error) {
	w.see(&w.prompted, tools)
	return w.Codec.Prompt(messages, tools)
}

func (w *toolWatch) Bridge(later []dialog.Message, tools []dialog.Tool) ([]int32, error) {
	w.see(&w.bridged, tools)
	return w.Codec.Bridge(later, tools)
}

func (w *toolWatch) see(in *[]string, tools []dialog.Tool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, t := range tools {
		*in = append(*in, t.Description)
	}
}

func TestNewMessagesOfADialogAreRewrittenToo(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prompts.Rule{Prompt: "search", Match: prompts.Match{Role: prompts.User, Prefix: "Look it up"}})
	s := newTestEnv(t, under(set), servingPrompts(set))
	s.replies = [][]int32{say("1", tokenizer.End)}
	s.chat(t, request(message("user", "a")))
	s.restart(t)
	s.chat(t, request(message("user", "a"), message("assistant", "1"), message("system", "Now: {{prompt:writer}}"), message("user", "Look it up!")))
	require.Equal(t, "<user>a<end><assistant>1<end><system>Now: Be brief.<end><user>Finds.!<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, []int{-1, 0}, s.parents(t))
	require.Equal(t, []bool{false, false}, s.drifts(t))
}

// A dialog goes on from the tokens that were made with the prompts, although its history
// has the agent's own text; also if the gateway was killed in between.
func TestADialogContinuesTheTokensThatWereMadeWithPrompts(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Write one query.", prefixed("You write SQL."))
	for name, change := range map[string]func(*record.Attempt){"append": func(*record.Attempt) {}, "template": byTemplate} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, func(a *record.Attempt) { under(set)(a); change(a) }, servingPrompts(set), publishedModel(t, "null"))
			codec, err := s.config.Codecs("")
			require.NoError(t, err)
			said := []string{"select 1", "select 2", "select 3"}
			sent := []string{message("system", "You write SQL.\nSchema: t(a)"), message("user", "How many?")}
			read := []dialog.Message{{Role: dialog.System, Content: "Write one query.\nSchema: t(a)"}, {Role: dialog.User, Content: "How many?"}}
			for turn, reply := range said {
				s.replies = [][]int32{append(codec.Encode(reply), 702)}
				a := s.chat(t, request(sent...))
				require.Equal(t, http.StatusOK, a.status, a.body)
				require.Equal(t, reply, content(t, a.body))
				want, err := codec.Prompt(read, nil)
				require.NoError(t, err)
				require.Equal(t, want, s.requests()[turn].Prompt)
				next := fmt.Sprintf("Once more, %d. You write SQL.", turn)
				sent = append(sent, message("assistant", reply), message("user", next))
				read = append(read, dialog.Message{Role: dialog.Assistant, Content: reply}, dialog.Message{Role: dialog.User, Content: next})
				s.restart(t)
			}
			require.Equal(t, []int{-1, 0, 1}, s.parents(t))
			require.Equal(t, []bool{false, false, false}, s.drifts(t))
			require.Len(t, record.Merge(record.Calls(s.recorded(t))), 1, "one sequence")
		})
	}
}

func TestEveryAPIIsRewritten(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"))
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"developer","content":"old rest"},{"role":"user","content":"q"}]}`,
		"/v1/responses":        `{"instructions":"old rest","input":"q"}`,
		"/v1/messages":         `{"max_tokens":8,"system":"old rest","messages":[{"role":"user","content":"q"}]}`,
	} {
		s := newTestEnv(t, under(set), servingPrompts(set))
		a := s.post(t, s.base()+path, body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "<system>Be brief. rest<end><user>q<end><assistant>", text(s.requests()[0].Prompt), path)
	}
	s := newTestEnv(t, under(set), servingPrompts(set))
	require.Equal(t, http.StatusOK, s.post(t, s.base()+"/v1/completions", `{"prompt":"old"}`).status)
	require.Equal(t, "old", text(s.requests()[0].Prompt), "a text prompt is no dialog")
}

func TestRulesForAnAgentHoldBelowItsNameAlone(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prompts.Rule{Prompt: "writer", Match: prompts.Match{Agent: "critic", Role: prompts.System}})
	s := newTestEnv(t, under(set), servingPrompts(set))
	body := request(message("system", "old"), message("user", "q"))
	s.post(t, s.base()+"/n/critic/v1/chat/completions", body)
	s.post(t, s.base()+"/n/writer/v1/chat/completions", body)
	require.Equal(t, "<system>Be brief.<end><user>q<end><assistant>", text(s.requests()[0].Prompt))
	require.Equal(t, "<system>old<end><user>q<end><assistant>", text(s.requests()[1].Prompt))
}

// The model that a request asks for is no part of what requests are compared by, unless
// prompts depend on it: then an equal key would stand for two prompts.
func TestAModelThatARuleNamesDistinguishesRequests(t *testing.T) {
	t.Parallel()
	byModel := promptSet(t, "Be brief.", prompts.Rule{Prompt: "writer", Match: prompts.Match{Model: "m", Role: prompts.System}})
	ask := func(s *testEnv, model string) {
		a := s.chat(t, `{"model":"`+model+`","messages":[`+message("system", "old")+`,`+message("user", "q")+`]}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	s := newTestEnv(t, under(byModel), servingPrompts(byModel))
	ask(s, "m")
	ask(s, "n")
	calls := s.recorded(t)
	require.NotEqual(t, calls[0].Key, calls[1].Key)
	require.Equal(t, "<system>Be brief.<end><user>q<end><assistant>", text(calls[0].Prompt))
	require.Equal(t, "<system>old<end><user>q<end><assistant>", text(calls[1].Prompt))
	other := promptSet(t, "Be brief.", prefixed("old"))
	s = newTestEnv(t, under(other), servingPrompts(other))
	ask(s, "m")
	ask(s, "n")
	calls = s.recorded(t)
	require.Equal(t, calls[0].Key, calls[1].Key)
}

func TestUnderOtherPromptsNothingIsReplayed(t *testing.T) {
	t.Parallel()
	one, other := promptSet(t, "Be brief.", prefixed("s")), promptSet(t, "Be long.", prefixed("s"))
	for name, c := range map[string]struct {
		before, after string
		replayed      int
	}{
		"equal":   {one.Digest(), one.Digest(), 1},
		"changed": {one.Digest(), other.Digest(), 0},
		"added":   {"", one.Digest(), 0},
		"removed": {one.Digest(), "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onJournals(t, func(t *testing.T, s *testEnv) {
				servingPrompts(one, other)(&s.config)
				s.next(t, 2, func(t *record.Terms) { t.Prompts = c.before })
				want := s.converse(t, 2, 2)
				s.next(t, 3, func(t *record.Terms) { t.Prompts = c.after })
				got := s.converse(t, 3, 2)
				if c.replayed == 0 {
					require.Equal(t, []int{0, 0}, s.from(t, 3))
					require.Len(t, s.requests(), 4)
					for _, call := range s.calls(t, 3) {
						require.Nil(t, call.Divergence, "there was nothing to replay")
					}
					return
				}
				require.Equal(t, want, got)
				require.Equal(t, []int{2, 2}, s.from(t, 3))
				require.Len(t, s.requests(), 2)
			})
		})
	}
}

func TestANameThatNoPromptHasIsRefused(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.")
	s := newTestEnv(t, under(set), servingPrompts(set))
	a := s.chat(t, request(message("system", "{{prompt:writer}} {{prompt:riter}}"), message("user", "q")))
	requireRefusal(t, a, http.StatusBadRequest, "prompt_not_found", "messages[0].content")
	require.Contains(t, a.body, `there are search, writer`)
	require.Empty(t, s.requests())
	require.Equal(t, map[string]int{"prompt_not_found": 1}, s.refused(t))
	require.Equal(t, http.StatusOK, s.chat(t, request(message("system", "{{prompt:writer}}"), message("user", "{{prompt:riter}}"))).status)
	require.Equal(t, "<system>Be brief.<end><user>{{prompt:riter}}<end><assistant>", text(s.requests()[0].Prompt))

	plain := newTestEnv(t, nil)
	require.Equal(t, http.StatusOK, plain.chat(t, request(message("system", "{{prompt:riter}}"), message("user", "q"))).status, "without prompts, it means nothing")
}

func TestAnAgentCanAskForAPrompt(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Schrieb {schema} für\n<you> & \"me\"")
	s := newTestEnv(t, under(set), servingPrompts(set))
	get := func(url string, headers ...string) answer {
		a, err := s.try(t.Context(), http.MethodGet, url, "", headers...)
		require.NoError(t, err)
		return a
	}
	for _, base := range []string{s.base(), s.base() + "/v1", s.base() + "/n/writer", s.base() + "/n/writer/v1"} {
		a := get(base + "/prompts/writer")
		require.Equal(t, http.StatusOK, a.status, base)
		require.Equal(t, "text/plain; charset=utf-8", a.header.Get("Content-Type"))
		require.Equal(t, "Schrieb {schema} für\n<you> & \"me\"", a.body)
	}
	a := get(s.base() + "/prompts/none")
	requireRefusal(t, a, http.StatusNotFound, "prompt_not_found", "name")
	require.Contains(t, a.body, "it has search, writer")
	require.Equal(t, http.StatusUnauthorized, get(s.base()+"/prompts/writer", "Authorization", "Bearer wrong").status)
	s.Seal(address, record.OutcomeCompleted)
	s.restart(t)
	requireRefusal(t, get(s.base()+"/prompts/writer"), http.StatusConflict, "attempt_fenced", "")

	plain := newTestEnv(t, nil)
	a, err := plain.try(t.Context(), http.MethodGet, plain.base()+"/prompts/writer", "")
	require.NoError(t, err)
	requireRefusal(t, a, http.StatusNotFound, "prompt_not_found", "name")
	require.Contains(t, a.body, "the attempt has no prompts")
}

func TestAnAgentAsksForItsPromptsThroughTheForwarder(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Write {schema}.")
	s := newTestEnv(t, under(set), servingPrompts(set))
	f, err := forwarder.New(t.Context(), func() string { return s.url }, zap.NewNop())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, f.Close(context.Background())) })
	session, err := f.Open(t.Context(), address, key)
	require.NoError(t, err)
	for _, base := range []string{session.BaseURL(), strings.TrimSuffix(session.BaseURL(), "/v1")} {
		a, err := s.try(t.Context(), http.MethodGet, base+"/prompts/writer", "")
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, "Write {schema}.", a.body)
	}
	a, err := s.try(t.Context(), http.MethodGet, session.BaseURL()+"/prompts/none", "")
	require.NoError(t, err)
	requireRefusal(t, a, http.StatusNotFound, "prompt_not_found", "name")
	session.Close()
	require.NoError(t, session.Fault())
}

func TestAServerOfMessagesReadsThePrompts(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"))
	s, server := newRelayEnv(t, under(set))
	servingPrompts(set)(&s.config)
	s.restart(t)
	first := s.chat(t, request(message("system", "old rest"), message("user", "q")))
	require.Equal(t, http.StatusOK, first.status, first.body)
	s.restart(t)
	a := s.chat(t, request(message("system", "old rest"), message("user", "q"), message("assistant", content(t, first.body)), message("user", "r")))
	require.Equal(t, http.StatusOK, a.status, a.body)
	for _, asked := range server.asked {
		require.Equal(t, "Be brief. rest", asked.Messages[0].Content)
	}
	require.Len(t, server.asked[1].Messages, 4)
	require.Equal(t, []int{-1, 0}, s.parents(t))
	require.Contains(t, string(s.recorded(t)[1].Request), "old rest")
}

func TestPromptsThatCantBeReadAreAFaultOfOurs(t *testing.T) {
	t.Parallel()
	set, other := promptSet(t, "a"), promptSet(t, "b")
	for name, configure := range map[string]func(*gateway.Config){
		"no prompts": func(*gateway.Config) {},
		"not there":  servingPrompts(other),
		"another's":  func(c *gateway.Config) { c.Prompts = func(string) (prompts.Set, error) { return other, nil } },
	} {
		s := newTestEnv(t, under(set), configure)
		a := s.chat(t, ask("q"))
		require.Equal(t, http.StatusServiceUnavailable, a.status, name)
		require.NotEmpty(t, a.header.Get("X-Fulgurite-Fault"), name)
		require.Empty(t, s.requests(), name)
		servingPrompts(set)(&s.config)
		s.restart(t)
		require.Equal(t, http.StatusOK, s.chat(t, ask("q")).status, "the same request may be sent again")
	}
}

// Of two matches of a rule only the first is replaced, so that the beginning of a dialog
// stays what it was when the second appears.
func TestASecondMatchLeavesTheBeginningOfTheDialogAsItWas(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"))
	s := newTestEnv(t, func(a *record.Attempt) { under(set)(a); byTemplate(a) }, servingPrompts(set))
	s.replies = [][]int32{say("1", tokenizer.End), say("2", tokenizer.End)}
	s.chat(t, request(message("system", "old"), message("user", "q")))
	s.chat(t, request(message("system", "old"), message("user", "q"), message("assistant", "1"), message("system", "old"), message("user", "r")))
	require.Equal(t, "<system>Be brief.<end><user>q<end><assistant>1<end><system>old<end><user>r<end><assistant>", text(s.requests()[1].Prompt))
	require.Equal(t, []int{-1, 0}, s.parents(t))
}
