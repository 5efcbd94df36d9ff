package gateway_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"

	"github.com/fulgurite/fulgurite/gateway"
	"github.com/fulgurite/fulgurite/model"
	"github.com/fulgurite/fulgurite/model/tokenizer"
	"github.com/fulgurite/fulgurite/prompts"
	"github.com/fulgurite/fulgurite/record"
)

// ruled puts rules into the terms.
func ruled(rules ...record.PolicyRule) func(*record.Attempt) {
	return func(a *record.Attempt) { a.Terms.Policies = rules }
}

// rule is a rule with one match, or with none.
func rule(policy string, match ...record.PolicyMatch) record.PolicyRule {
	return record.PolicyRule{Policy: policy, Match: match}
}

// byAgent are the rules of two policies with one agent each.
func byAgent() []record.PolicyRule {
	return []record.PolicyRule{rule("checker", record.PolicyMatch{Agent: "checker"}), rule("writer", record.PolicyMatch{Agent: "writer"})}
}

// asAgent makes a chat call of a named agent.
func (s *testEnv) asAgent(t *testing.T, attempt int, agent, body string, headers ...string) answer {
	t.Helper()
	return s.post(t, s.url+"/r/"+at(attempt).String()+"/n/"+agent+"/v1/chat/completions", body, headers...)
}

// policies lists the policies of an attempt's calls.
func (s *testEnv) policies(t *testing.T, attempt int) []string {
	t.Helper()
	all := []string{}
	for _, c := range s.calls(t, attempt) {
		all = append(all, c.Policy)
	}
	return all
}

func TestAPolicyIsChosenByTheRequest(t *testing.T) {
	t.Parallel()
	first, second := 0, 1
	body := request(message("system", "You check facts."), message("user", "Is it so?"), message("system", "Be brief."))
	for name, c := range map[string]struct {
		match       record.PolicyMatch
		agent, body string
		chosen      bool
	}{
		"agent":                    {record.PolicyMatch{Agent: "checker"}, "checker", body, true},
		"another agent":            {record.PolicyMatch{Agent: "checker"}, "writer", body, false},
		"no agent":                 {record.PolicyMatch{Agent: "checker"}, "", body, false},
		"model":                    {record.PolicyMatch{Model: "m"}, "", body, true},
		"another model":            {record.PolicyMatch{Model: "n"}, "", body, false},
		"agent and model":          {record.PolicyMatch{Agent: "a", Model: "m"}, "a", body, true},
		"agent, another model":     {record.PolicyMatch{Agent: "a", Model: "n"}, "a", body, false},
		"prefix":                   {record.PolicyMatch{Role: "system", Prefix: "You check"}, "", body, true},
		"not at the beginning":     {record.PolicyMatch{Role: "system", Prefix: "check"}, "", body, false},
		"exact":                    {record.PolicyMatch{Role: "system", Exact: "You check facts."}, "", body, true},
		"only a part":              {record.PolicyMatch{Role: "system", Exact: "You check"}, "", body, false},
		"later message":            {record.PolicyMatch{Role: "system", Exact: "Be brief."}, "", body, true},
		"role of a user":           {record.PolicyMatch{Role: "user", Prefix: "Is it"}, "", body, true},
		"another role":             {record.PolicyMatch{Role: "user", Prefix: "You check"}, "", body, false},
		"no role":                  {record.PolicyMatch{Prefix: "You check"}, "", body, true},
		"developer is system":      {record.PolicyMatch{Role: "developer", Prefix: "You check"}, "", body, true},
		"system is developer":      {record.PolicyMatch{Role: "system", Prefix: "You check"}, "", request(message("developer", "You check"), message("user", "q")), true},
		"position":                 {record.PolicyMatch{Role: "system", Position: &first, Prefix: "You check"}, "", body, true},
		"another position":         {record.PolicyMatch{Role: "system", Position: &second, Prefix: "You check"}, "", body, false},
		"agent and text":           {record.PolicyMatch{Agent: "a", Role: "system", Prefix: "You check"}, "a", body, true},
		"text of another agent":    {record.PolicyMatch{Agent: "a", Role: "system", Prefix: "You check"}, "b", body, false},
		"what the model said":      {record.PolicyMatch{Role: "system", Prefix: "1"}, "", request(message("user", "q"), message("assistant", "1"), message("user", "r")), false},
		"role without text is any": {record.PolicyMatch{Model: "m", Role: "user"}, "", request(message("system", "q")), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, ruled(rule("checker", record.PolicyMatch{Agent: "nobody"}, c.match), rule("writer")))
			url := s.base()
			if c.agent != "" {
				url += "/n/" + c.agent
			}
			a := s.post(t, url+"/v1/chat/completions", c.body)
			require.Equal(t, http.StatusOK, a.status, a.body)
			want := "writer"
			if c.chosen {
				want = "checker"
			}
			require.Equal(t, []string{want}, s.policies(t, 1))
			require.Equal(t, []model.VersionID{{Run: "demo", Policy: want, Number: 2}}, s.version)
			require.Equal(t, 2, s.calls(t, 1)[0].Version)
		})
	}
}

func TestEveryAPIChoosesAPolicy(t *testing.T) {
	t.Parallel()
	rules := ruled(rule("checker", record.PolicyMatch{Role: "system", Prefix: "You check"}), rule("writer", record.PolicyMatch{Agent: "writer"}), rule("rest"))
	for path, body := range map[string]string{
		"/v1/chat/completions": `{"messages":[{"role":"developer","content":"You check it"},{"role":"user","content":"q"}]}`,
		"/v1/responses":        `{"instructions":"You check it","input":"q"}`,
		"/v1/messages":         `{"max_tokens":8,"system":"You check it","messages":[{"role":"user","content":"q"}]}`,
	} {
		s := newTestEnv(t, rules)
		a := s.post(t, s.base()+path, body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		require.Equal(t, []string{"checker"}, s.policies(t, 1), path)
	}
	s := newTestEnv(t, rules)
	for _, agent := range []string{"/n/writer", ""} {
		a := s.post(t, s.base()+agent+"/v1/completions", `{"prompt":"You check it"}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	require.Equal(t, []string{"writer", "rest"}, s.policies(t, 1), "a text prompt has no messages")
}

func TestARequestThatNoPolicyOrTwoPoliciesAnswerIsRefused(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, ruled(rule("checker", record.PolicyMatch{Agent: "a"}), rule("writer", record.PolicyMatch{Model: "m"}), rule("scout", record.PolicyMatch{Agent: "scout"})))
	two := s.asAgent(t, 1, "a", request(message("user", "q")))
	requireRefusal(t, two, http.StatusBadRequest, "ambiguous_policy", "model")
	require.Contains(t, two.body, `2 policies answer this request of agent \"a\" for model \"m\": checker, writer: change policies.NAME.match of the spec`)
	none := s.chat(t, ask("q"))
	requireRefusal(t, none, http.StatusBadRequest, "no_policy", "model")
	require.Contains(t, none.body, `no policy answers this request of an agent without a name for model \"any\": the policies are checker, writer, scout: change policies.NAME.match of the spec`)
	requireRefusal(t, s.post(t, s.base()+"/v1/completions", `{"prompt":"q"}`), http.StatusBadRequest, "no_policy", "model")
	require.Equal(t, map[string]int{"ambiguous_policy": 1, "no_policy": 2}, s.refused(t))
	require.Empty(t, s.requests())
	require.Empty(t, s.recorded(t))
}

func TestTokensAreCountedForThePolicyThatWouldAnswer(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, ruled(byAgent()...))
	odd := say(int32(32+'1'), int32(32+'2'), tokenizer.End)
	s.replies = [][]int32{odd}
	s.asAgent(t, 1, "writer", request(message("user", "q")))
	body := `{"max_tokens":8,"messages":[` + message("user", "q") + `,` + message("assistant", "12") + `,` + message("user", "r") + `]}`
	counts := map[string]float64{}
	for _, agent := range []string{"writer", "checker"} {
		a := s.post(t, s.base()+"/n/"+agent+"/v1/messages/count_tokens", body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		counts[agent] = object(t, a.body)["input_tokens"].(float64)
		require.Equal(t, http.StatusOK, s.post(t, s.base()+"/n/"+agent+"/v1/messages", body).status)
	}
	calls := s.recorded(t)
	require.Equal(t, map[string]float64{"writer": float64(len(calls[1].Prompt)), "checker": float64(len(calls[2].Prompt))}, counts)
	requireRefusal(t, s.chat(t, ask("q")), http.StatusBadRequest, "no_policy", "model")
	a := s.post(t, s.base()+"/v1/messages/count_tokens", body)
	require.Equal(t, http.StatusBadRequest, a.status)
	require.Contains(t, a.body, "no policy answers this request")
}

func TestAPolicyIsChosenByWhatTheAgentSentAndNotByItsPrompts(t *testing.T) {
	t.Parallel()
	set := promptSet(t, "Be brief.", prefixed("old"), prompts.Rule{Prompt: "search", Match: prompts.Match{Role: prompts.User, Prefix: "Look"}})
	rules := ruled(rule("sent", record.PolicyMatch{Role: "system", Prefix: "old"}), rule("read", record.PolicyMatch{Role: "system", Prefix: "Be brief."}))
	s := newTestEnv(t, func(a *record.Attempt) { under(set)(a); rules(a) }, servingPrompts(set))
	a := s.chat(t, request(message("system", "old rest"), message("user", "q")))
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Equal(t, []string{"sent"}, s.policies(t, 1))
	require.Equal(t, "<system>Be brief. rest<end><user>q<end><assistant>", text(s.requests()[0].Prompt))
}

// Without the policy in their keys, the second of these requests would look like a retry of
// the first one, and a replay would give it the reply of the other policy.
func TestEqualRequestsOfTwoPoliciesAreTwoRequests(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules  []record.PolicyRule
		bodies [2]string
		ignore []string
	}{
		"other model": {
			[]record.PolicyRule{rule("one", record.PolicyMatch{Model: "m"}), rule("other")},
			[2]string{request(message("user", "q")), ask("q")}, nil,
		},
		"other ignored text": {
			[]record.PolicyRule{rule("one", record.PolicyMatch{Role: "system", Prefix: "Monday"}), rule("other")},
			[2]string{request(message("system", "Monday"), message("user", "q")), request(message("system", "Friday"), message("user", "q"))},
			[]string{"[A-Z][a-z]*day"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newTestEnv(t, func(a *record.Attempt) { ruled(c.rules...)(a); a.Terms.Ignore = c.ignore })
			var want [2]string
			for i, body := range c.bodies {
				want[i] = s.ask(t, 1, body).body
				s.restart(t)
			}
			for i, body := range c.bodies {
				require.Equal(t, want[i], s.ask(t, 1, body, "X-Fulgurite-Retry", "1").body)
			}
			calls := s.calls(t, 1)
			require.Len(t, calls, 2)
			require.NotEqual(t, calls[0].Key, calls[1].Key)
			require.NotEqual(t, calls[0].Seed, calls[1].Seed)
			require.Equal(t, []string{"one", "other"}, s.policies(t, 1))
			s.next(t, 2)
			for i, body := range slices.Backward(c.bodies[:]) {
				require.Equal(t, want[i], s.ask(t, 2, body).body)
			}
			require.Equal(t, []string{"other", "one"}, s.policies(t, 2))
			require.Equal(t, []int{1, 1}, s.from(t, 2))
		})
	}
}

// take makes turns calls of a dialog in which the agents take turns. Each of them reads all
// that was said.
func (s *testEnv) take(t *testing.T, attempt, turns int, restart bool) []string {
	t.Helper()
	replies, dialog := []string{}, []string{message("system", "s"), message("user", "go")}
	for turn := range turns {
		a := s.asAgent(t, attempt, []string{"writer", "checker"}[turn%2], request(dialog...))
		require.Equal(t, http.StatusOK, a.status, a.body)
		replies = append(replies, a.body)
		dialog = append(dialog, message("assistant", content(t, a.body)), message("user", fmt.Sprintf("turn %d", turn)))
		if restart {
			s.restart(t)
		}
	}
	return replies
}

// requireOnePolicyEach merges calls and checks that each sequence has the calls of one
// policy. It returns how many sequences each policy has.
func requireOnePolicyEach(t *testing.T, calls []record.Call) map[string]int {
	t.Helper()
	found := map[string]int{}
	for _, q := range record.Merge(calls) {
		found[q.Policy]++
		for _, i := range q.Call {
			if i >= 0 {
				require.Equal(t, q.Policy, calls[i].Policy)
			}
		}
	}
	return found
}

func TestADialogOfTwoPoliciesContinuesEachPolicysOwnTokens(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, ruled(byAgent()...))
		// The digits are spelled by their bytes, which no encoding of the text would do.
		for digit := range int32(5) {
			s.replies = append(s.replies, say(32+'1'+digit, tokenizer.End))
		}
		said := slices.Clone(s.replies)
		s.take(t, 1, 5, restarted)
		require.Equal(t, []string{"writer", "checker", "writer", "checker", "writer"}, s.policies(t, 1))
		require.Equal(t, []int{-1, -1, 0, 1, 2}, s.parents(t))
		calls := s.recorded(t)
		own := func(i int) []int32 { return slices.Concat(calls[i].Prompt, calls[i].Completion) }
		require.Equal(t, "<system>s<end><user>go<end><assistant>1<end><user>turn 0<end><assistant>", text(calls[1].Prompt))
		require.False(t, contains(calls[1].Prompt, said[0]), "the other policy's reply is text")
		for i := 2; i < len(calls); i++ {
			require.Equal(t, own(i-2), calls[i].Prompt[:len(own(i-2))], "its own reply is tokens")
			require.False(t, contains(calls[i].Prompt, said[i-1]))
			more := fmt.Sprintf("<user>turn %d<end><assistant>%d<end><user>turn %d<end><assistant>", i-2, i, i-1)
			require.Equal(t, more, text(calls[i].Prompt[len(own(i-2)):]))
		}
		require.Equal(t, map[string]int{"writer": 1, "checker": 1}, requireOnePolicyEach(t, record.Calls(calls)))
	}
}

// contains reports whether tokens has part in it.
func contains(tokens, part []int32) bool {
	for i := range tokens {
		if len(tokens[i:]) >= len(part) && slices.Equal(tokens[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// What the first policy said, rendered as text, has the tokens that it sampled. The prompt
// of the second policy begins with them, and yet it continues no call.
func TestATextThatHasTheTokensOfAnotherPolicyContinuesNothing(t *testing.T) {
	t.Parallel()
	for name, history := range map[string]func(*record.Attempt){"append": func(*record.Attempt) {}, "template": byTemplate} {
		s := newTestEnv(t, func(a *record.Attempt) { ruled(byAgent()...)(a); history(a) })
		want := s.take(t, 1, 4, false)
		calls := s.recorded(t)
		first := slices.Concat(calls[0].Prompt, calls[0].Completion)
		require.Equal(t, first, calls[1].Prompt[:len(first)], name)
		require.Equal(t, []int{-1, -1, 0, 1}, s.parents(t), name)
		require.Equal(t, []bool{false, false, false, false}, s.drifts(t), name)
		require.Equal(t, map[string]int{"writer": 1, "checker": 1}, requireOnePolicyEach(t, record.Calls(calls)), name)
		s.next(t, 2)
		require.Equal(t, want, s.take(t, 2, 4, false))
		require.Equal(t, []int{1, 1, 1, 1}, s.from(t, 2))
		for i, c := range s.calls(t, 2) {
			require.Equal(t, calls[i].Parent, c.Parent, "also if it is replayed")
		}
	}
	s := newTestEnv(t, ruled(byAgent()...))
	complete := func(agent string, prompt []int32) {
		body, err := json.Marshal(map[string]any{"prompt": prompt})
		require.NoError(t, err)
		a := s.post(t, s.base()+"/n/"+agent+"/v1/completions", string(body))
		require.Equal(t, http.StatusOK, a.status, a.body)
	}
	complete("writer", say("a"))
	for _, agent := range []string{"checker", "writer"} {
		complete(agent, slices.Concat(say("a"), s.recorded(t)[0].Completion, say("b")))
	}
	require.Equal(t, []int{-1, -1, 0}, s.parents(t), "of text prompts, too")
	require.Equal(t, map[string]int{"writer": 1, "checker": 1}, requireOnePolicyEach(t, record.Calls(s.recorded(t))))
}

func TestADialogOfTwoPoliciesIsReplayedToWhereItDied(t *testing.T) {
	t.Parallel()
	const turns = 5
	undisturbed := newTestEnv(t, ruled(byAgent()...))
	want := undisturbed.take(t, 1, turns, false)
	wanted := asSampled(undisturbed.calls(t, 1))
	for died := range turns + 1 {
		t.Run(fmt.Sprint(died), func(t *testing.T) {
			t.Parallel()
			claim := func(t *testing.T, s *testEnv) {
				require.Equal(t, want[:died], s.take(t, 1, died, true))
				s.next(t, 2)
				require.Equal(t, want, s.take(t, 2, turns, true))
				require.Len(t, s.requests(), turns, "no call was sampled twice")
				for _, v := range s.version {
					require.Contains(t, []string{"checker", "writer"}, v.Policy)
				}
				// The comparison has the policies, keys, seeds, parents and tokens.
				require.Empty(t, cmp.Diff(wanted, asSampled(s.calls(t, 2))))
				require.Equal(t, map[string]int{"writer": 1, "checker": 1}, requireOnePolicyEach(t, record.Calls(s.calls(t, 2))))
			}
			t.Run("memory", func(t *testing.T) {
				t.Parallel()
				claim(t, newTestEnv(t, ruled(byAgent()...)))
			})
			t.Run("store", func(t *testing.T) {
				t.Parallel()
				d := openDatabase(t)
				s := newTestEnv(t, ruled(byAgent()...), func(c *gateway.Config) { c.Journal = d })
				d.Begin(s.attempts[address])
				claim(t, s)
			})
		})
	}
}

func TestUnderOtherRulesNothingIsReplayed(t *testing.T) {
	t.Parallel()
	position := func(n int) []record.PolicyRule {
		return append(byAgent(), rule("rest", record.PolicyMatch{Role: "system", Prefix: "x", Position: &n}))
	}
	for name, c := range map[string]struct {
		before, after []record.PolicyRule
		replayed      int
	}{
		"equal":           {byAgent(), byAgent(), 1},
		"equal position":  {position(1), position(1), 1},
		"added":           {nil, []record.PolicyRule{rule("main")}, 0},
		"removed":         {[]record.PolicyRule{rule("main")}, nil, 0},
		"other position":  {position(1), position(2), 0},
		"another match":   {byAgent(), append(byAgent()[:1], rule("writer")), 0},
		"another name":    {byAgent(), append(byAgent()[:1], rule("author", record.PolicyMatch{Agent: "writer"})), 0},
		"one policy more": {byAgent(), append(byAgent(), rule("rest")), 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onJournals(t, func(t *testing.T, s *testEnv) {
				s.next(t, 2, func(t *record.Terms) { t.Policies = c.before })
				s.take(t, 2, 2, false)
				s.next(t, 3, func(t *record.Terms) { t.Policies = c.after })
				s.take(t, 3, 2, false)
				require.Equal(t, []int{2 * c.replayed, 2 * c.replayed}, s.from(t, 3))
				require.Len(t, s.requests(), 4-2*c.replayed)
				for _, call := range s.calls(t, 3) {
					require.Nil(t, call.Divergence, "there was nothing to replay")
				}
			})
		})
	}
}

// The client leaves the reasoning of a tool call out. The policy that thought it continues
// its tokens, and the other one does not read it. If the client repeats it, both do.
func TestAPolicyReadsTheToolCallsOfAnotherAsTheClientSaysThem(t *testing.T) {
	t.Parallel()
	const tool = `"tools":[{"type":"function","function":{"name":"f","parameters":{"properties":{"x":{"type":"string"}},"required":["x"]}}}],`
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, ruled(byAgent()...), think)
		s.replies = [][]int32{say("hm", tokenizer.Argument, tokenizer.ToolCall, int32(32+'7'), tokenizer.End)}
		a := s.asAgent(t, 1, "writer", `{`+tool+`"messages":[`+message("user", "a")+`]}`)
		require.Equal(t, http.StatusOK, a.status, a.body)
		id := textAt(object(t, a.body), "choices", 0, "message", "tool_calls", 0, "id")
		if restarted {
			s.restart(t)
		}
		ask := func(agent, system, reasoning string) {
			calls := `{"role":"assistant","reasoning_content":` + fmt.Sprintf("%q", reasoning) + `,"tool_calls":[{"id":"` + id + `","function":{"name":"f","arguments":"{\"x\": \"7\"}"}}]}`
			a := s.asAgent(t, 1, agent, `{`+tool+`"messages":[`+system+message("user", "a")+`,`+calls+`,{"role":"tool","tool_call_id":"`+id+`","content":"49"}]}`)
			require.Equal(t, http.StatusOK, a.status, a.body)
		}
		ask("writer", "", "")
		ask("checker", "", "")
		ask("checker", "", "hm")
		other := message("system", "s") + ","
		ask("checker", other, "")
		ask("writer", other, "")
		require.Equal(t, []int{-1, 0, -1, -1, -1, -1}, s.parents(t))
		read := []string{}
		for _, r := range s.requests()[1:] {
			read = append(read, text(r.Prompt))
		}
		require.Equal(t, []string{
			"<user>a<end><assistant>hm<arg><call>7<end><tool>49<end><assistant>",
			"<user>a<end><assistant><call>7<end><tool>49<end><assistant>",
			"<user>a<end><assistant>hm<arg><call>7<end><tool>49<end><assistant>",
			"<system>s<end><user>a<end><assistant><call>7<end><tool>49<end><assistant>",
			"<system>s<end><user>a<end><assistant>hm<arg><call>7<end><tool>49<end><assistant>",
		}, read)
		keys := map[string]bool{}
		for _, c := range s.recorded(t) {
			keys[c.Key] = true
		}
		require.Len(t, keys, 6, "requests that are read differently differ")
	}
}

func TestAReplyThatBothPoliciesGaveIsContinuedByEachAsItsOwn(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		s := newTestEnv(t, ruled(byAgent()...))
		s.replies = [][]int32{say("7", tokenizer.End), say(int32(32+'7'), tokenizer.End), say("8", tokenizer.End), say("8", tokenizer.End)}
		turns := []string{message("user", "a")}
		for _, reply := range []string{"7", "8", ""} {
			for _, agent := range []string{"writer", "checker"} {
				require.Equal(t, http.StatusOK, s.asAgent(t, 1, agent, request(turns...)).status)
			}
			turns = append(turns, message("assistant", reply), message("user", "?"))
			if restarted {
				s.restart(t)
			}
		}
		require.Equal(t, []int{-1, -1, 0, 1, 2, 3}, s.parents(t))
		require.Equal(t, map[string]int{"writer": 1, "checker": 1}, requireOnePolicyEach(t, record.Calls(s.recorded(t))))
	}
}

func TestAReplyIsContinuedByItsIDUnderAnotherPolicy(t *testing.T) {
	t.Parallel()
	s := newTestEnv(t, ruled(byAgent()...))
	s.replies = [][]int32{say(int32(32+'7'), tokenizer.End)}
	respond := func(agent, body string) string {
		a := s.post(t, s.base()+"/n/"+agent+"/v1/responses", body)
		require.Equal(t, http.StatusOK, a.status, a.body)
		return textAt(object(t, a.body), "id")
	}
	id := respond("writer", `{"input":"a"}`)
	s.restart(t)
	for _, agent := range []string{"checker", "writer"} {
		respond(agent, `{"previous_response_id":"`+id+`","input":"b"}`)
	}
	require.Equal(t, []int{-1, -1, 0}, s.parents(t))
	for _, c := range s.recorded(t)[1:] {
		require.Equal(t, "<user>a<end><assistant>7<end><user>b<end><assistant>", text(c.Prompt))
	}
	require.Equal(t, []string{"writer", "checker", "writer"}, s.policies(t, 1))
}

func TestAnAttemptListsTheVersionOfEachPolicy(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rules []record.PolicyRule
		want  []string
	}{
		{nil, []string{"demo@2"}},
		{byAgent(), []string{"demo:checker@2", "demo:writer@2"}},
	} {
		s := newTestEnv(t, ruled(c.rules...))
		a, err := s.try(t.Context(), http.MethodGet, s.base()+"/v1/models", "")
		require.NoError(t, err)
		var names []string
		for _, m := range object(t, a.body)["data"].([]any) {
			names = append(names, textAt(m, "id"))
		}
		require.Equal(t, c.want, names)
	}
}
